"""Dumps of polled tables: read all rows of a table, or those that match a condition, page by page in key order.

Polling finds only rows with a newer cursor. A dump finds the others: rows whose cursor is NULL or did not change and,
if it reads all rows, deleted rows. Signals start and stop dumps (`ingest.capture.signals`). Progress is committed with
the rows, so a dump resumes after a crash.

An older row version never wins. A page is read and published at once, between two polls, and each row gets the next
sequence number. So a greater number means a later read. The marker at the end may therefore remove rows with numbers
below that of the dump's begin: a row that existed all the time was read again, and a row that was inserted into a part
already read has a new cursor, so polling publishes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from cdc.model.errors import Fatal, Retriable, UsageError
from cdc.model.schema import TableId, TableSchema
from ingest.capture.signals import TYPES, Signal
from ingest.events.log_events import Image
from ingest.poll.poll_interfaces import PollReader

# Signals that polled sources do not support, each with what to do instead.
_INSTEAD = {
    "pause-snapshot": "dumps of polled tables cannot be paused: use stop-snapshot, and later execute-snapshot",
    "resume-snapshot": "dumps of polled tables cannot be paused: start one with execute-snapshot",
    "schema-set": "the columns of a polled source are read from the source every few seconds",
    "mend-rows": "a polled source has no log to repair: execute-snapshot with a condition reads rows again",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpPage:
    """Rows of one page. `marker` is set at the end of a dump of all rows: the sequence number at the dump's begin.

    `given_up` is why the dump was cancelled; empty if it was not.
    """

    images: list[Image]
    marker: int | None = None
    given_up: str = ""


class Dumps:
    """The running dumps of one source. `number` takes the next sequence number of the source.

    `moved`: there is progress to commit. `state` has the same form as the snapshots of other sources, so that the same
    commands show and await dumps.
    """

    def __init__(self, number: Callable[[], int]) -> None:
        self._number = number
        self._running: dict[TableId, dict[str, Any]] = {}
        self.signals: int | None = None
        self.moved = False

    def load(self, state: Mapping[str, Any], tables: Iterable[TableId]) -> list[str]:
        """Resume dumps from a checkpoint's state. Returns the tables that are no longer polled, whose dumps are
        dropped."""
        self.signals = state.get("signals")
        by_name = {name_of(table): table for table in tables}
        stored: Mapping[str, Mapping[str, Any]] = state.get("snapshots", {})
        self._running = {by_name[name]: dict(entry) for name, entry in stored.items() if name in by_name}
        return [name for name in stored if name not in by_name]

    @property
    def state(self) -> dict[str, Any]:
        """Return the state for a checkpoint; inverse of `load`."""
        snapshots = {name_of(table): dict(entry) for table, entry in self._running.items()}
        signals = {} if self.signals is None else {"signals": self.signals}
        return {**signals, **({"snapshots": snapshots} if snapshots else {})}

    @property
    def tables(self) -> list[TableId]:
        """Return the tables whose dumps are running."""
        return list(self._running)

    def progress(self) -> Mapping[str, int]:
        """Return the number of rows read so far, by table."""
        return {name_of(table): entry["rows"] for table, entry in self._running.items()}

    def execute(self, signal: Signal, tables: Iterable[TableId], now_ms: int) -> str:
        """Execute a signal. Returns why it is refused, or "". `tables` are the polled tables."""
        if signal.type not in ("execute-snapshot", "stop-snapshot"):
            return _INSTEAD.get(signal.type, f"type {signal.type} is none of {', '.join(TYPES)}")
        by_name, refused = {name_of(table): table for table in tables}, []
        for name in signal.tables:
            if name not in by_name:
                refused.append(f"{name} is not polled")
            elif signal.type == "stop-snapshot":
                self._running.pop(by_name[name], None)
            else:
                self._start(by_name[name], signal.filters.get(name, ""), now_ms)
        self.moved = True
        return "; ".join(refused)

    def _start(self, table: TableId, where: str, now_ms: int) -> None:
        """Start a dump from the beginning. If one of the table is running, the new dump also reads the rows of that
        one."""
        known = self._running.get(table)
        if known is not None and where:
            before = known.get("where", "")
            where = where if before == where else f"({before}) OR ({where})" if before else ""
        entry: dict[str, Any] = {"rows": 0, "began_ms": now_ms}
        self._running[table] = {**entry, "where": where} if where else {**entry, "marker": self._number()}

    def page(self, reader: PollReader, schema: TableSchema, limit: int) -> DumpPage:
        """Read the next page of a running dump.

        Raises the errors of the reader. A dump that can never be read is cancelled instead.
        """
        table, key = schema.table_id, [[name, _type_of(schema, name)] for name in schema.primary_key]
        entry = self._running[table]
        if entry.get("key", key) != key:  # the key has changed: start again
            entry.pop("after", None)
        after, where = entry.get("after"), entry.get("where", "")
        self.moved = True
        try:
            images, last = reader.walk(schema, after, where, limit)
        except UsageError as error:
            del self._running[table]
            return DumpPage(images=[], given_up=str(error))
        except (Retriable, Fatal) as error:
            if not where:
                raise
            reader.walk(schema, after, "", 1)  # raises if the cause is the database, and not the dump's condition
            del self._running[table]
            return DumpPage(images=[], given_up=f"the condition {where}: {error}")
        entry["rows"] += len(images)
        if last is not None:
            entry |= {"after": last, "key": key}
            return DumpPage(images=images)
        del self._running[table]
        return DumpPage(images=images, marker=entry.get("marker"))


def name_of(table: TableId) -> str:
    """Return a table's name in signals and checkpoints."""
    return table.name


def _type_of(schema: TableSchema, name: str) -> str:
    column = schema.column(name)
    return "" if column is None else column.column_type
