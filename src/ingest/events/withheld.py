"""Withhold the rows events of an open transaction until they can no longer be rolled back.

A server may log changes and roll them back: MariaDB does so if a transaction creates or drops a temporary table. So the
rows of a transaction are published when it is committed. A transaction of more than `MOST` bytes is published in parts.
If it is rolled back after that, the tables concerned are re-read.
"""

from __future__ import annotations

import re

from cdc.model.schema import TableId
from ingest.events.row_events import RowsEvent

MOST = 16 << 20
_SAVEPOINT = re.compile(r"\s*SAVEPOINT\s+(.+?)\s*", re.IGNORECASE | re.DOTALL)
_ROLLBACK_TO = re.compile(r"\s*ROLLBACK\s+(?:WORK\s+)?TO\s+(?:SAVEPOINT\s+)?(.+?)\s*", re.IGNORECASE | re.DOTALL)


class WithheldRows:
    """Rows events of one transaction. `bytes` is their size; `released` are tables of which events were handed out."""

    def __init__(self) -> None:
        self.events: list[RowsEvent] = []
        self.bytes = 0
        self.released: dict[TableId, None] = {}
        self._before = 0
        self._savepoints: dict[str, int] = {}

    def add(self, event: RowsEvent) -> bool:
        """Withhold one more event. Returns whether so many are withheld that they must be handed out."""
        self.events.append(event)
        self.bytes += len(event.raw.data)
        return self.bytes > MOST

    @property
    def tables(self) -> tuple[TableId, ...]:
        """Return the tables of all events, including those that were handed out."""
        return tuple({**self.released, **{event.table: None for event in self.events}})

    def take(self) -> list[RowsEvent]:
        """Hand out the events: their published records cannot be undone."""
        found, self.events = self.events, []
        self.released.update((event.table, None) for event in found)
        self._before += len(found)
        self.bytes = 0
        return found

    def control(self, statement: str) -> tuple[TableId, ...]:
        """Execute SAVEPOINT or ROLLBACK TO.

        Returns the tables to re-read, because undone events were handed out before.
        """
        if found := _SAVEPOINT.fullmatch(statement):
            self._savepoints[_name(found[1])] = self._before + len(self.events)
        elif found := _ROLLBACK_TO.fullmatch(statement):
            # an unknown savepoint precedes all logged events of the transaction
            return self.undo(self._savepoints.get(_name(found[1]), 0))
        return ()

    def undo(self, mark: int = 0) -> tuple[TableId, ...]:
        """Drop the events from the mark on.

        Returns the tables to re-read, because some events were handed out before.
        """
        kept = max(0, mark - self._before)
        self.bytes -= sum(len(event.raw.data) for event in self.events[kept:])
        del self.events[kept:]
        return tuple(self.released) if mark < self._before else ()


def _name(text: str) -> str:
    """Return a savepoint's name in lower case, because servers compare names without regard to case."""
    if text[:1] == "`" and text[-1:] == "`":
        text = text[1:-1].replace("``", "`")
    return text.lower()
