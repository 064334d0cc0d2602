"""Merge the cells and delete markers of each row in a batch, and compute the version that Solr's fence compares.

    version = 2 · max(timestamps of cells and delete markers) + (1 if the newest is a row's delete marker)

As in HBase, a marker hides cells with the same or an older timestamp, anywhere in the batch. So a delete at
`timestamp` and a put at `timestamp + 1` result in the put in either order. A delete wins over a put with the same
timestamp."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from indexer.peer.wire import DELETE, DELETE_COLUMN, DELETE_FAMILY, DELETE_FAMILY_VERSION, PUT, Write


class RowChange(NamedTuple):
    """State of one row after a batch. `cells` are its live cells by qualifier.

    `deleted` means that the newest write is a row delete. `cells` may lack columns, because a batch contains only
    what was written in it. `version` increases with every write of the row."""

    row: bytes
    version: int
    cells: dict[bytes, bytes]
    deleted: bool


def collapse(writes: Iterable[Write], family: bytes) -> list[RowChange]:
    """Return one change per row, in the order in which the rows first appear. Cells of other families are ignored."""
    by_row: dict[bytes, list[Write]] = {}
    for write in writes:
        if write.family == family:
            found = by_row.get(write.row)
            if found is None:
                by_row[write.row] = [write]
            else:
                found.append(write)
    return [_merge(row, found) for row, found in by_row.items()]


def _merge(row: bytes, writes: list[Write]) -> RowChange:
    first = writes[0]
    # A single whole-row put is by far the most frequent change.
    if len(writes) == 1 and first.type == PUT:
        return RowChange(row, 2 * first.timestamp, first.cells, False)
    newest = max(write.timestamp for write in writes)
    markers = [write for write in writes if write.type != PUT]
    row_deleted_at = max((write.timestamp for write in markers if write.type == DELETE_FAMILY), default=-1)
    alive: dict[bytes, bytes] = {}
    # of two writes with one timestamp the later one counts, as in HBase: the sort is stable
    for write in sorted((write for write in writes if write.type == PUT), key=lambda write: write.timestamp):
        for qualifier, value in write.cells.items():
            if not any(_hides(marker, write.timestamp, qualifier) for marker in markers):
                alive[qualifier] = value
    deleted = row_deleted_at == newest
    return RowChange(row, 2 * newest + deleted, alive, deleted)


def _hides(marker: Write, timestamp: int, qualifier: bytes) -> bool:
    if marker.type == DELETE_FAMILY:
        return timestamp <= marker.timestamp
    if marker.type == DELETE_FAMILY_VERSION:
        return timestamp == marker.timestamp
    if qualifier not in marker.cells:
        return False
    if marker.type == DELETE_COLUMN:
        return timestamp <= marker.timestamp
    return marker.type == DELETE and timestamp == marker.timestamp
