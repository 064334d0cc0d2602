"""Withhold the rows events of an open transaction until it is committed.

A server may log changes and then roll them back: MariaDB does so if a transaction creates or drops a temporary table. A
transaction of more than `MOST` bytes is published in parts before its commit. If it is then rolled back, its tables are
re-read.
"""

from __future__ import annotations

import re

from cdc.model.schema import TableId
from ingest.events.row_events import RowsEvent

MOST = 16 << 20
_SAVEPOINT = re.compile(r"\s*SAVEPOINT\s+(.+?)\s*", re.IGNORECASE | re.DOTALL)
_ROLLBACK_TO = re.compile(r"\s*ROLLBACK\s+(?:WORK\s+)?TO\s+(?:SAVEPOINT\s+)?(.+?)\s*", re.IGNORECASE | re.DOTALL)


class WithheldRows:
    """The rows events of one transaction. `events` are those that are still withheld, `bytes` is their size.

    `released` are the tables of events that `take` has already returned."""

    def __init__(self) -> None:
        self.events: list[RowsEvent] = []
        self.bytes = 0
        self.released: dict[TableId, None] = {}
        self._before = 0
        self._savepoints: dict[str, int] = {}

    def add(self, event: RowsEvent) -> bool:
        """Withhold one more event. Returns True if the limit is reached, so that `take` must be called."""
        self.events.append(event)
        self.bytes += len(event.raw.data)
        return self.bytes > MOST

    @property
    def tables(self) -> tuple[TableId, ...]:
        """Return the tables of all events, including those that were already taken."""
        return tuple({**self.released, **{event.table: None for event in self.events}})

    def take(self) -> list[RowsEvent]:
        """Return and remove the withheld events, for publication."""
        found, self.events = self.events, []
        self.released.update((event.table, None) for event in found)
        self._before += len(found)
        self.bytes = 0
        return found

    def control(self, statement: str) -> tuple[TableId, ...]:
        """Apply SAVEPOINT or ROLLBACK TO; other statements have no effect.

        Returns the tables to re-read: events that the statement undoes were already taken."""
        if found := _SAVEPOINT.fullmatch(statement):
            self._savepoints[_name(found[1])] = self._before + len(self.events)
        elif found := _ROLLBACK_TO.fullmatch(statement):
            # an unknown savepoint was set before the first event of the transaction
            return self.undo(self._savepoints.get(_name(found[1]), 0))
        return ()

    def undo(self, mark: int = 0) -> tuple[TableId, ...]:
        """Drop the events after the first `mark` ones. Returns the tables to re-read, because some of these events were
        already taken; empty if none was."""
        kept = max(0, mark - self._before)
        self.bytes -= sum(len(event.raw.data) for event in self.events[kept:])
        del self.events[kept:]
        return tuple(self.released) if mark < self._before else ()


def _name(text: str) -> str:
    """Return a savepoint's name in lower case, because servers ignore the case of these names."""
    if text[:1] == "`" and text[-1:] == "`":
        text = text[1:-1].replace("``", "`")
    return text.lower()
