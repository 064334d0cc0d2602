"""A marker in the log (op `t`) says two things of its partition. Rows are gone: those whose newest record in front of
it is older than the marker's sequence. TRUNCATE leaves one in every partition; so does a repeated snapshot, at its end:
the rows that it has seen are younger than its marker, the others are gone. And rows that were read again may
have moved: their records do not say from where, so what was told of them before stands where nobody retracts it.

A stateful step runs only for keys that messages name, so somebody must name these rows. The log does: who meets a
marker reads its partition again, from the beginning to the marker. Each row that is gone leaves as a delete at the
marker's place, and so does each image of a row that no later record of it has named as its before image. So nothing
waits for the markers of other partitions, a replay finds the same, and no step knows of it. It takes that reading, more
than one where the rows are more than memory should hold; and the log must still hold what the query has read, which
compaction after `min_compaction_lag` grants.

Sources that repeat and reorder need no images (`latest` supplies them), but one thing more: what is older than a marker
and comes behind it came too late. The sequence of a partition's newest marker is its floor, which is kept with the run.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from cdc.stored.traces import NOWHERE
from joins.steps.records import Values, text_of
from joins.steps.route import Changed, LogReader, Truncated

Past = tuple[int, bytes | None, bytes | None]  # offset, key and value of a record
MOST = 250_000  # rows held in memory


@dataclass(slots=True)
class _Reported:
    """A row's newest change, None once it is gone, and its images that no later change has retracted."""

    live: Changed | None = None
    stale: list[Values] = field(default_factory=list)


def repaired(
    reader: LogReader, marker: Truncated, past: Callable[[], Iterable[Past]], most: int = MOST
) -> Iterator[Changed]:
    """The changes that a marker stands for; `past` begins to read what its partition holds in front of it, in order.

    At most about `most` rows are held at a time: where there are more, half of the keys waits for another reading.
    """
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
    # of a log without order, a row seen at that moment is younger
    v = 2 * marker.sequence - 1 if marker.source.needs_latest else marker.offset
    ts_ms, place = (marker.ts_ms, NOWHERE) if live is None else (live.ts_ms, live.place)
    for before in images:
        yield Changed(marker.source, before, after, v, ts_ms, True, False, marker.sequence, True, place=place)


def _read(
    reader: LogReader, marker: Truncated, past: Iterable[Past], share: tuple[int, int], most: int
) -> tuple[dict[bytes, _Reported], list[tuple[int, int]]]:
    """The rows of a share of the keys, and the shares that must be read by themselves since they are too many."""
    source, rows, others = marker.source, dict[bytes, _Reported](), list[tuple[int, int]]()
    for offset, key, value in past:
        found = reader.read(source.topic, marker.partition, offset, key, value)
        if isinstance(found, Truncated):  # it has ended the rows older than it, and mended the others
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
            assert known.after is not None  # else it was not live
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
