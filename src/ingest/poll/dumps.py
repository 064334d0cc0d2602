"""Dumps of polled tables: the rows of a table, or those of a condition, read again page by page along the key.

Polling finds what its cursor tells; a dump finds the rest: rows whose cursor is NULL, rows that were changed without
it, and, where all rows are read, those that are gone. It is begun and given up by the signals that running captures
obey (`ingest.capture.signals`), and its progress is committed with the rows, so that it goes on after any crash.

Why no older row wins: a page is read and told at once, between two readings of polling, and each row told gets the next
number of the sequence. So what has the greater number was read later, whoever read it. And why a marker at the end may
take away what has a smaller number than the dump's beginning: a row that was there all the while was read since, and
one that came behind the walk was written since, which polling tells.
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

# What is asked of polled sources in vain, and what does instead.
_INSTEAD = {
    "pause-snapshot": "dumps of polled tables are not paused: stop-snapshot gives one up, execute-snapshot begins anew",
    "resume-snapshot": "dumps of polled tables are not paused: execute-snapshot begins one",
    "schema-set": "a polled source tells itself what the columns are, every few seconds",
    "mend-rows": "a polled source has no log that could be mended: execute-snapshot with a condition reads rows again",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Dumped:
    """What one page brought: its rows; `marker`, at the end of a dump of all rows, is the number of its beginning.

    `given_up` is why the dump ended before its end; it is empty where all is well.
    """

    images: list[Image]
    marker: int | None = None
    given_up: str = ""


class Dumps:
    """The dumps of one source that are under way; `number` gives the next one of the source's sequence.

    `moved` says that there is progress to be committed; `state` is that progress, as captures of logs have it, so that
    whoever shows or awaits their snapshots understands these too.
    """

    def __init__(self, number: Callable[[], int]) -> None:
        self._number = number
        self._under_way: dict[TableId, dict[str, Any]] = {}
        self.signals: int | None = None
        self.moved = False

    def load(self, state: Mapping[str, Any], tables: Iterable[TableId]) -> list[str]:
        """Go on as `state` says; the dumps of tables that are not polled any more, which are forgotten."""
        self.signals = state.get("signals")
        by_name = {name_of(table): table for table in tables}
        stored: Mapping[str, Mapping[str, Any]] = state.get("snapshots", {})
        self._under_way = {by_name[name]: dict(entry) for name, entry in stored.items() if name in by_name}
        return [name for name in stored if name not in by_name]

    @property
    def state(self) -> dict[str, Any]:
        """What a checkpoint must remember; `load` in another process goes on from there."""
        snapshots = {name_of(table): dict(entry) for table, entry in self._under_way.items()}
        signals = {} if self.signals is None else {"signals": self.signals}
        return {**signals, **({"snapshots": snapshots} if snapshots else {})}

    @property
    def tables(self) -> list[TableId]:
        """Whose dumps are under way."""
        return list(self._under_way)

    def progress(self) -> Mapping[str, int]:
        """Rows read so far, by table."""
        return {name_of(table): entry["rows"] for table, entry in self._under_way.items()}

    def obey(self, signal: Signal, tables: Iterable[TableId], now_ms: int) -> str:
        """Do as a signal says; the reason why not, or an empty text. `tables` are those that are polled."""
        if signal.type not in ("execute-snapshot", "stop-snapshot"):
            return _INSTEAD.get(signal.type, f"type {signal.type} is none of {', '.join(TYPES)}")
        by_name, refused = {name_of(table): table for table in tables}, []
        for name in signal.tables:
            if name not in by_name:
                refused.append(f"{name} is not polled")
            elif signal.type == "stop-snapshot":
                self._under_way.pop(by_name[name], None)
            else:
                self._start(by_name[name], signal.filters.get(name, ""), now_ms)
        self.moved = True
        return "; ".join(refused)

    def _start(self, table: TableId, where: str, now_ms: int) -> None:
        """From the beginning, for those too who asked before: a dump under way reads no less than it did."""
        known = self._under_way.get(table)
        if known is not None and where:
            before = known.get("where", "")
            where = where if before == where else f"({before}) OR ({where})" if before else ""
        entry: dict[str, Any] = {"rows": 0, "began_ms": now_ms}
        self._under_way[table] = {**entry, "where": where} if where else {**entry, "marker": self._number()}

    def page(self, reader: PollReader, schema: TableSchema, limit: int) -> Dumped:
        """Read the next page of a table whose dump is under way; raises what the reader raises, a dump that can never
        be read is given up instead.
        """
        table, key = schema.table_id, [[name, _type_of(schema, name)] for name in schema.primary_key]
        entry = self._under_way[table]
        if entry.get("key", key) != key:  # what is behind a place in another key, nobody knows
            entry.pop("after", None)
        after, where = entry.get("after"), entry.get("where", "")
        self.moved = True
        try:
            images, behind = reader.walk(schema, after, where, limit)
        except UsageError as error:
            del self._under_way[table]
            return Dumped(images=[], given_up=str(error))
        except (Retriable, Fatal) as error:
            if not where:
                raise
            reader.walk(schema, after, "", 1)  # raises if not the condition is at fault, but the database is away
            del self._under_way[table]
            return Dumped(images=[], given_up=f"the condition {where}: {error}")
        entry["rows"] += len(images)
        if behind is not None:
            entry |= {"after": behind, "key": key}
            return Dumped(images=images)
        del self._under_way[table]
        return Dumped(images=images, marker=entry.get("marker"))


def name_of(table: TableId) -> str:
    """A table as signals and states name it."""
    return table.name


def _type_of(schema: TableSchema, name: str) -> str:
    column = schema.column(name)
    return "" if column is None else column.column_type
