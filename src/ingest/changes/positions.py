"""Search the position records of a source. Positions grow from record to record, except after a rewind."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Literal, NamedTuple, Protocol

from cdc.model.event import Position
from ingest.changes.merging import Offsets

BEGINNING: Final = "beginning"


class PositionMark(NamedTuple):
    """One record of `…positions`: its offset and timestamp (ms), the position, and the end offsets of each topic."""

    offset: int
    ts_ms: int
    position: Position
    ends: Mapping[str, Offsets]


class PositionMarks(Protocol):
    """The position records of one source in their partition."""

    def bounds(self) -> tuple[int, int]:
        """Return the first retained offset and the end offset of the partition."""

    def first(self, offset: int) -> PositionMark | None:
        """Return the first record at or after an offset; None if there is none."""


def last_before(
    marks: PositionMarks, reached: Callable[[Position], bool], whole_since: int
) -> PositionMark | Literal["beginning"] | None:
    """Return the last record whose position `reached` returns False for. All later changes were committed after it.

    Returns `BEGINNING` if there is no such record, and the first record ever written is still retained. Returns None if
    compaction may have removed changes after the record: only changes since `whole_since` (ms) are certainly retained.
    """
    low, high = marks.bounds()
    oldest = marks.first(low)
    if oldest is None:
        return None
    if reached(oldest.position):
        return BEGINNING if oldest.offset == 0 else None
    last = oldest
    # `reached` is False for records before `low`; records from `high` on have reached it, or do not exist
    low = oldest.offset + 1
    while low < high:
        middle = (low + high) // 2
        mark = marks.first(middle)
        if mark is None or reached(mark.position):
            high = middle
        else:
            # within a large transaction, whose first parts were committed before this record
            last, low = last if mark.position.row else mark, mark.offset + 1
    newest = marks.first(last.offset + 1) is None
    return last if newest or last.ts_ms >= whole_since else None
