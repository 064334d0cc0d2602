"""A search among a source's position records; pure. They grow, but where a capture was set back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Literal, NamedTuple, Protocol

from cdc.model.event import Position
from ingest.changes.merging import Offsets

BEGINNING: Final = "beginning"


class PositionMark(NamedTuple):
    """One position record: its offset, when the log took it (ms), the position, and where each topic ended."""

    offset: int
    ts_ms: int
    position: Position
    ends: Mapping[str, Offsets]


class PositionMarks(Protocol):
    """The records of one source in their partition."""

    def bounds(self) -> tuple[int, int]:
        """The first offset that is held, and the one behind the last."""

    def first(self, offset: int) -> PositionMark | None:
        """The first record at an offset or behind it; None where there is none."""


def last_before(
    marks: PositionMarks, reached: Callable[[Position], bool], whole_since: int
) -> PositionMark | Literal["beginning"] | None:
    """The last record whose position had not `reached` something: all that reaches it was committed behind that.

    `BEGINNING` where no record had not, and the first that ever was is still there. None where what was committed
    behind the record may not all be in the log any more: compaction spares what is younger than `whole_since` (ms).
    """
    low, high = marks.bounds()
    oldest = marks.first(low)
    if oldest is None:
        return None
    if reached(oldest.position):
        return BEGINNING if oldest.offset == 0 else None
    last = oldest
    low = oldest.offset + 1  # everything below has not reached it, everything from `high` on has, or is nothing
    while low < high:
        middle = (low + high) // 2
        mark = marks.first(middle)
        if mark is None or reached(mark.position):
            high = middle
        else:
            # within a transaction that took several commits: its first ones stand before it
            last, low = last if mark.position.row else mark, mark.offset + 1
    newest = marks.first(last.offset + 1) is None
    return last if newest or last.ts_ms >= whole_since else None
