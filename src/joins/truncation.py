"""A marker in the log (op `t`) says which rows of a table are gone: those whose newest record in front of it, in its
partition, is older than the marker's sequence. TRUNCATE leaves one in every partition. So does a snapshot that was
taken again, at its end: the rows that it has seen are younger than its marker, the others are gone.

A stateful step runs only for keys that messages name, so somebody must name these rows. The log does: who meets a
marker reads its partition again, from the beginning to the marker, and each row that is gone leaves as a delete at the
marker's place. So nothing waits for the markers of other partitions, a replay finds the same rows, and no step knows of
it. It takes that reading, and memory for the rows that are gone from one partition; and the log must still hold what
the query has read, which compaction after `min_compaction_lag` grants.

Sources that repeat and reorder need one thing more: what is older than a marker and comes behind it came too late. The
sequence of a partition's newest marker is its floor, which is kept with the run.
"""

from __future__ import annotations

from collections.abc import Iterable

from joins.records import text_of
from joins.route import Changed, Reader, Truncated

Past = tuple[int, bytes | None, bytes | None]  # offset, key and value of a record


def vanished(reader: Reader, marker: Truncated, past: Iterable[Past]) -> list[Changed]:
    """The deletes that a marker stands for; `past` = what its partition holds in front of it, in order."""
    source, rows = marker.source, dict[bytes, Changed]()
    for offset, key, value in past:
        found = reader.read(source.topic, marker.partition, offset, key, value)
        if isinstance(found, Truncated):
            rows = {at: row for at, row in rows.items() if not found.ends(row)}
        if not isinstance(found, Changed):
            continue
        at = _key(found)
        if source.needs_latest and at in rows and found.sequence < rows[at].sequence:
            continue  # repeated, or late
        rows.pop(at, None)
        if found.after is not None:
            rows[at] = found
    v = 2 * marker.sequence - 1 if source.needs_latest else marker.offset  # a row seen at that moment is younger
    return [
        Changed(source, row.after, None, v, row.ts_ms, False, False, marker.sequence)
        for row in rows.values()
        if marker.ends(row)
    ]


def _key(change: Changed) -> bytes:
    columns, image = change.source.columns, change.before if change.after is None else change.after
    assert image is not None  # a change has an image
    return text_of([image[columns.index(name)] for name in change.source.key])
