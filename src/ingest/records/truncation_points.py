"""Keep the numbers of a table's truncate markers from decreasing.

A marker says that rows with smaller sequence numbers no longer exist. All markers of a table have the same key, so
compaction keeps the newest one only. That one must end the rows that any earlier one ended. But a repeated snapshot
gets its number when it begins, and a TRUNCATE may come before its end; and a snapshot with a condition ends no rows at
all. So a marker gets at least the number of the last one. It ends no further rows: the earlier marker ended them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cdc.persistent import PersistentMap, persistent

STATE = "truncated"  # key in a checkpoint's state: by `database.table`, the greatest number of a marker


class TruncationPoints:
    """The greatest sequence number of a marker, by table."""

    def __init__(self) -> None:
        self._numbers: PersistentMap[str, int] = PersistentMap()

    def load(self, state: Mapping[str, Any], sequence: int) -> None:
        """Load the numbers of a checkpoint. `sequence` is its last number.

        After a rewind, markers have greater numbers. The log is read again from there on, and with it come rows that
        the markers ended: the markers of the second time end them."""
        stored: Mapping[str, int] = state.get(STATE, {})
        self._numbers = persistent({name: min(number, sequence) for name, number in stored.items()})

    def state(self, before: Mapping[str, Any]) -> dict[str, Any]:
        """Return a checkpoint's state (`before`) with the current numbers."""
        state = {name: value for name, value in before.items() if name != STATE}
        return {**state, STATE: self._numbers} if self._numbers else state

    def raised(self, table: str, number: int) -> int:
        """Return the number for the next marker of a table (`database.table`): `number`, or that of the last marker if
        it is greater."""
        last = self._numbers.get(table, -1)
        if number > last:
            self._numbers = self._numbers.put(table, number)
        return max(number, last)
