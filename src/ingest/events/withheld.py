"""Rows events of an open transaction, withheld until they can no longer be rolled back; pure.

A server may log changes and roll them back: MariaDB does so wherever a transaction makes or drops a temporary table.
So the rows of a transaction are published when it is committed. A transaction of more than `MOST` bytes is published in
parts: if it is rolled back after that, the tables concerned are read again.
"""

from __future__ import annotations

import re

from cdc.model.schema import TableId
from ingest.events.row_events import RowsEvent

MOST = 16 << 20
_SAVEPOINT = re.compile(r"\s*SAVEPOINT\s+(.+?)\s*", re.IGNORECASE | re.DOTALL)
_ROLLBACK_TO = re.compile(r"\s*ROLLBACK\s+(?:WORK\s+)?TO\s+(?:SAVEPOINT\s+)?(.+?)\s*", re.IGNORECASE | re.DOTALL)


class Withheld:
    """The rows events of one transaction. `bytes` is their size; of the tables in `released` some were handed out."""

    def __init__(self) -> None:
        self.events: list[RowsEvent] = []
        self.bytes = 0
        self.released: dict[TableId, None] = {}
        self._before = 0
        self._savepoints: dict[str, int] = {}

    def add(self, event: RowsEvent) -> bool:
        """Withhold one more event; whether there are so many now that they must be handed out."""
        self.events.append(event)
        self.bytes += len(event.raw.data)
        return self.bytes > MOST

    @property
    def tables(self) -> tuple[TableId, ...]:
        """The tables of all events, those that were handed out among them."""
        return tuple({**self.released, **{event.table: None for event in self.events}})

    def take(self) -> list[RowsEvent]:
        """Hand out the events: what was published of them cannot be taken back any more."""
        found, self.events = self.events, []
        self.released.update((event.table, None) for event in found)
        self._before += len(found)
        self.bytes = 0
        return found

    def control(self, statement: str) -> tuple[TableId, ...]:
        """Obey SAVEPOINT or ROLLBACK TO; the tables to read again, because what is undone was handed out before."""
        if found := _SAVEPOINT.fullmatch(statement):
            self._savepoints[_name(found[1])] = self._before + len(self.events)
        elif found := _ROLLBACK_TO.fullmatch(statement):
            # a savepoint that is not known stands before all that was logged of the transaction
            return self.undo(self._savepoints.get(_name(found[1]), 0))
        return ()

    def undo(self, mark: int = 0) -> tuple[TableId, ...]:
        """Drop the events from the mark on; the tables to read again, because some of them were handed out before."""
        kept = max(0, mark - self._before)
        self.bytes -= sum(len(event.raw.data) for event in self.events[kept:])
        del self.events[kept:]
        return tuple(self.released) if mark < self._before else ()


def _name(text: str) -> str:
    """A savepoint's name, which servers compare without regard to case."""
    if text[:1] == "`" and text[-1:] == "`":
        text = text[1:-1].replace("``", "`")
    return text.lower()
