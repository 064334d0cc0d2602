"""Turn a marker in a topic (op `t`) into the deletes and repairs that it stands for.

A marker says two things about its partition:

- Rows whose newest record before the marker has a smaller sequence than the marker no longer exist. TRUNCATE writes
  a marker to every partition. So does the end of a repeated snapshot; rows that the snapshot read have greater
  sequences.
- Rows that were read again may have changed without a record of it. The new record has no before image. So what the
  join made of an earlier image stays visible until it is retracted.

A stateful step runs only for keys that messages name. So the reader that meets a marker reads its partition again,
from the beginning to the marker. It emits a delete at the marker's offset for each deleted row. It also retracts
each image that no later record has named as its before image. Steps need not wait for markers of other partitions, a
repeated batch gives the same result, and no other step knows about markers. The price is one more read of the
partition, or several if the rows exceed the memory limit. Compaction must not have removed what the join has read;
`min_compaction_lag` ensures that.

Sources that repeat and reorder events need no images, because `latest` supplies them. But a record that arrives
after the marker and has a smaller sequence is too late. So the sequence of a partition's newest marker, its
*truncation point*, is stored with the run, for each table of a merged table."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from cdc.model.naming import table_named
from cdc.stored.traces import NOWHERE
from joins.runtime.records import Values, text_of
from joins.steps.route import Changed, LogReader, Truncated

Past = tuple[int, bytes | None, bytes | None]  # offset, key and value of a record
MOST = 250_000  # rows held in memory


@dataclass(slots=True)
class _Reported:
    """The newest change of a row (`live`; None: deleted), and its earlier images that no later change has retracted
    (`stale`)."""

    live: Changed | None = None
    stale: list[Values] = field(default_factory=list)


def repaired(
    reader: LogReader, marker: Truncated, past: Callable[[], Iterable[Past]], most: int = MOST
) -> Iterator[Changed]:
    """Yield the changes that a marker stands for.

    `past` starts a new read of the partition up to the marker, in order. At most about `most` rows are in memory. If
    there are more, half of the keys are left for another read."""
    shares = [(0, 1)]  # remainder and divisor of keys' hashes
    while shares:
        rows, others = _read(reader, marker, past(), shares.pop(), most)
        shares += others
        for row in rows.values():
            yield from _repair(marker, row)


def _repair(marker: Truncated, row: _Reported) -> Iterator[Changed]:
    live = row.live
    gone = live is not None and marker.ends(live)
    after = None if live is None or gone else live.after
    images = [*([live.after] if live is not None and gone else []), *(one for one in row.stale if one != after)]
    # in a log without order, a row that the snapshot saw at that moment is younger
    v = 2 * marker.sequence - 1 if marker.source.needs_latest else marker.offset
    ts_ms, place = (marker.ts_ms, NOWHERE) if live is None else (live.ts_ms, live.place)
    for before in images:
        yield Changed(marker.source, before, after, v, ts_ms, True, False, marker.sequence, True, place=place)


def _read(
    reader: LogReader, marker: Truncated, past: Iterable[Past], share: tuple[int, int], most: int
) -> tuple[dict[bytes, _Reported], list[tuple[int, int]]]:
    """Return the rows of one share of the keys, and the shares that need another read because they have too many
    rows."""
    source, rows, others = marker.source, dict[bytes, _Reported](), list[tuple[int, int]]()
    for offset, key, value in past:
        found = reader.read(source.topic, marker.partition, offset, key, value)
        if isinstance(found, Changed | Truncated) and found.source is not source:
            continue  # of another table in the same topic
        if source.merged and table_named(key) != marker.table:
            continue  # of another table of the same merged table
        if isinstance(found, Truncated):  # it has already deleted the rows older than it and repaired the others
            rows = {
                at: _Reported(row.live) for at, row in rows.items() if row.live is not None and not found.ends(row.live)
            }
        if not isinstance(found, Changed) or not _within(at := _key(found), share):
            continue
        row = rows.setdefault(at, _Reported())
        known = row.live
        if source.needs_latest and known is not None and found.sequence < known.sequence:
            continue  # repeated, or late
        if not source.needs_latest and known is not None and known.after not in (found.before, found.after):
            assert known.after is not None  # otherwise it would not be live
            row.stale.append(known.after)
        row.live = None if found.after is None else found
        if row.live is None and not row.stale:
            del rows[at]
        if len(rows) > most:
            others.append((share[0] + share[1], 2 * share[1]))
            share = (share[0], 2 * share[1])
            rows = {at: row for at, row in rows.items() if _within(at, share)}
    return rows, others


def _within(key: bytes, share: tuple[int, int]) -> bool:
    return zlib.crc32(key) % share[1] == share[0]


def _key(change: Changed) -> bytes:
    columns, image = change.source.columns, change.before if change.after is None else change.after
    assert image is not None  # a change has an image
    return text_of([image[columns.index(name)] for name in change.source.key])
