"""Content handlers: each event passes through a chain of handlers, which may change, consume or inject events.

A handler receives an event and returns it, returns another one, or returns None if it consumes the event. Handlers may
be added and removed at run time, even by handlers. Injected events pass through the whole chain before the next event
is read.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Final

from ingest.binlog.format.tablemap import TableMap
from ingest.binlog.reading import events as e
from ingest.binlog.reading.effects import changes_rows

MAX_TRANSACTION_EVENTS: Final = 10_000


class ContentHandler:
    """Base class of handlers: one method per kind of event. By default, each returns its event unchanged.

    Override the methods that you need. `process` receives all other events, also unknown ones. While the handler is in
    a chain, events that it appends to `injection` are processed next.
    """

    injection: deque[e.Event]

    def process_event(self, event: e.Event) -> e.Event | None:
        """Pass an event to the method for its class. Returns the event to pass on, or None to drop it."""
        match event:
            case e.Query():
                return self.process_query(event)
            case e.Rows():
                return self.process_rows(event)
            case e.TableMapped():
                return self.process_table_map(event)
            case e.Xid():
                return self.process_xid(event)
            case e.UserVar():
                return self.process_user_var(event)
            case e.Incident():
                return self.process_incident(event)
            case e.Rotate():
                return self.process_rotate(event)
            case e.IntVar():
                return self.process_int_var(event)
            case e.Gtid() | e.MariaGtid():
                return self.process_gtid(event)
            case e.Transaction():
                return self.process_transaction(event)
        return self.process(event)

    def process(self, event: e.Event) -> e.Event | None:
        return event

    def process_query(self, event: e.Query) -> e.Event | None:
        return self.process(event)

    def process_rows(self, event: e.Rows) -> e.Event | None:
        return self.process(event)

    def process_table_map(self, event: e.TableMapped) -> e.Event | None:
        return self.process(event)

    def process_xid(self, event: e.Xid) -> e.Event | None:
        return self.process(event)

    def process_user_var(self, event: e.UserVar) -> e.Event | None:
        return self.process(event)

    def process_incident(self, event: e.Incident) -> e.Event | None:
        return self.process(event)

    def process_rotate(self, event: e.Rotate) -> e.Event | None:
        return self.process(event)

    def process_int_var(self, event: e.IntVar) -> e.Event | None:
        return self.process(event)

    def process_gtid(self, event: e.Gtid | e.MariaGtid) -> e.Event | None:
        return self.process(event)

    def process_transaction(self, event: e.Transaction) -> e.Event | None:
        return self.process(event)


class HandlerChain:
    """The handlers in order, and the queue of injected events. Changes take effect with the next event."""

    def __init__(self) -> None:
        self._handlers: list[ContentHandler] = []
        self.injection: deque[e.Event] = deque()

    def append(self, handler: ContentHandler) -> None:
        """Add a handler after all others, from the next event on."""
        handler.injection = self.injection
        self._handlers.append(handler)

    def insert(self, index: int, handler: ContentHandler) -> None:
        """Add a handler before the one at `index`."""
        handler.injection = self.injection
        self._handlers.insert(index, handler)

    def remove(self, handler: ContentHandler) -> None:
        """Remove a handler. Raises ValueError if it is not in the chain."""
        self._handlers.remove(handler)

    def __iter__(self) -> Iterator[ContentHandler]:
        return iter(tuple(self._handlers))

    def __len__(self) -> int:
        return len(self._handlers)

    def run(self, event: e.Event) -> e.Event | None:
        """Pass an event through all handlers. Returns None if one consumed it."""
        current: e.Event | None = event
        for handler in tuple(self._handlers):
            if current is None:
                return None
            current = handler.process_event(current)
        return current


class TransactionAggregator(ContentHandler):
    """The default handler: it consumes the events of a transaction, and returns one `Transaction` at its end.

    `Transaction.tables` are the table maps by id. A transaction of more than `limit` events is returned in parts, of
    which only the last is `complete`, so that memory stays bounded. Events between transactions pass unchanged.
    """

    def __init__(self, limit: int = MAX_TRANSACTION_EVENTS) -> None:
        self._limit = limit
        self._gtid = ""
        self._events: list[e.Event] = []
        self._tables: dict[int, TableMap] = {}
        self._open = self._framed = False

    def process_gtid(self, event: e.Gtid | e.MariaGtid) -> e.Event | None:
        self._begin(event.gtid)
        self._framed = isinstance(event, e.MariaGtid) and not event.standalone
        return self._collect(event)

    def process_query(self, event: e.Query) -> e.Event | None:
        if event.text == "BEGIN" or event.text.upper().startswith(("XA START", "XA BEGIN")):
            if not self._open:
                self._begin("")
            self._framed = True
            return self._collect(event)
        if not self._open:
            return event
        word = event.text[:16].upper().lstrip()
        ends = word.startswith(("COMMIT", "ROLLBACK")) and not word.startswith("ROLLBACK TO")
        if ends or (not self._framed and not changes_rows(event.text)):
            return self._finish(event)
        return self._collect(event)

    def process_xid(self, event: e.Xid) -> e.Event | None:
        return self._finish(event) if self._open else event

    def process_table_map(self, event: e.TableMapped) -> e.Event | None:
        if not self._open:
            return event
        self._tables[event.table.table_id] = event.table
        return self._collect(event)

    def process(self, event: e.Event) -> e.Event | None:
        if isinstance(event, e.XaPrepare) and self._open:
            return self._finish(event)
        if not self._open or isinstance(event, e.Incident | e.Heartbeat | e.Rotate | e.FormatDescription):
            return event
        return self._collect(event)

    def _begin(self, gtid: str) -> None:
        self._gtid, self._open, self._framed = gtid, True, False
        self._events, self._tables = [], {}

    def _collect(self, event: e.Event) -> e.Event | None:
        self._events.append(event)
        if len(self._events) < self._limit:
            return None
        part = self._transaction(event, complete=False)
        self._events = []
        return part

    def _finish(self, event: e.Event) -> e.Event:
        self._events.append(event)
        whole = self._transaction(event, complete=True)
        self._open = self._framed = False
        self._events, self._tables = [], {}
        return whole

    def _transaction(self, last: e.Event, *, complete: bool) -> e.Transaction:
        return e.Transaction(
            header=last.header,
            file=self._events[0].file,
            offset=self._events[0].offset,
            gtid=self._gtid,
            events=tuple(self._events),
            complete=complete,
            tables=dict(self._tables),
        )
