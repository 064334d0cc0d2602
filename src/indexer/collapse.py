"""What a batch of edits makes of each row: its cells and delete markers merged, with the version that fences it.

    version = 2 · max(timestamps of cells and delete markers) + (1 if the newest is a row's delete marker)

A marker hides cells of its own timestamp and older ones, wherever it stands in the batch, as in HBase. So a delete at
`stamp` and a put at `stamp + 1` end as the put in either order, and a delete wins over a put of its own stamp.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from indexer.wire import DELETE, DELETE_COLUMN, DELETE_FAMILY, DELETE_FAMILY_VERSION, PUT, Cell


@dataclass(frozen=True, slots=True, kw_only=True)
class RowChange:
    """What is known of one row after a batch: `cells` alive by qualifier, `deleted` when a row delete is the newest.

    `cells` may be less than the row: a batch shows only what was written in it. `version` grows with every write.
    """

    row: bytes
    version: int
    cells: dict[bytes, bytes]
    deleted: bool


def collapse(cells: Iterable[Cell], family: bytes) -> list[RowChange]:
    """One change per row, in the order in which the rows first appear; cells of other families are left out."""
    by_row: dict[bytes, list[Cell]] = {}
    for cell in cells:
        if cell.family == family:
            by_row.setdefault(cell.row, []).append(cell)
    return [_merge(row, found) for row, found in by_row.items()]


def _merge(row: bytes, cells: list[Cell]) -> RowChange:
    newest = max(cell.timestamp for cell in cells)
    markers = [cell for cell in cells if cell.type != PUT]
    # A whole-row put alone is nearly every change there is.
    if not markers and all(cell.timestamp == newest for cell in cells):
        return RowChange(
            row=row, version=2 * newest, cells={cell.qualifier: cell.value for cell in cells}, deleted=False
        )
    row_deleted_at = max((cell.timestamp for cell in markers if cell.type == DELETE_FAMILY), default=-1)
    alive: dict[bytes, Cell] = {}
    for cell in cells:
        if cell.type != PUT or any(_hides(marker, cell) for marker in markers):
            continue
        known = alive.get(cell.qualifier)
        # of two writes at one timestamp the later one counts, as in HBase
        if known is None or cell.timestamp >= known.timestamp:
            alive[cell.qualifier] = cell
    deleted = row_deleted_at == newest
    return RowChange(
        row=row,
        version=2 * newest + deleted,
        cells={qualifier: cell.value for qualifier, cell in alive.items()},
        deleted=deleted,
    )


def _hides(marker: Cell, cell: Cell) -> bool:
    if marker.type == DELETE_FAMILY:
        return cell.timestamp <= marker.timestamp
    if marker.type == DELETE_FAMILY_VERSION:
        return cell.timestamp == marker.timestamp
    if marker.qualifier != cell.qualifier:
        return False
    if marker.type == DELETE_COLUMN:
        return cell.timestamp <= marker.timestamp
    return marker.type == DELETE and cell.timestamp == marker.timestamp
