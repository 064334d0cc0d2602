"""Search a source's position records. Positions grow from record to record, except after a rewind."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Literal, NamedTuple, Protocol

from cdc.model.event import Position
from ingest.changes.merging import Offsets

BEGINNING: Final = "beginning"


class PositionMark(NamedTuple):
    """One position record: offset, record timestamp (ms), position, and the end offsets of each topic."""

    offset: int
    ts_ms: int
    position: Position
    ends: Mapping[str, Offsets]


class PositionMarks(Protocol):
    """The position records of one source in their partition."""

    def bounds(self) -> tuple[int, int]:
        """Return the first retained offset, and the end offset."""

    def first(self, offset: int) -> PositionMark | None:
        """Return the first record at or after an offset; None if there is none."""


def last_before(
    marks: PositionMarks, reached: Callable[[Position], bool], whole_since: int
) -> PositionMark | Literal["beginning"] | None:
    """Return the last record whose position had not `reached` a given point. All later changes were committed after it.

    Returns `BEGINNING` if every record had reached it and the very first record is still retained. Returns None if
    compaction may have removed changes after the record: it keeps everything younger than `whole_since` (ms).
    """
    low, high = marks.bounds()
    oldest = marks.first(low)
    if oldest is None:
        return None
    if reached(oldest.position):
        return BEGINNING if oldest.offset == 0 else None
    last = oldest
    low = oldest.offset + 1  # records below have not reached it; records from `high` on have, or do not exist
    while low < high:
        middle = (low + high) // 2
        mark = marks.first(middle)
        if mark is None or reached(mark.position):
            high = middle
        else:
            # inside a transaction of several commits: its first commits are before this record
            last, low = last if mark.position.row else mark, mark.offset + 1
    newest = marks.first(last.offset + 1) is None
    return last if newest or last.ts_ms >= whole_since else None
