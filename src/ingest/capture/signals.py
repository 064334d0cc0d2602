"""Signals to a running capture, in the format of Debezium's Kafka signal channel.

A signal is a record of the topic `…signals`: key = `<topology>.<source>`, value = `{"type": …, "data": {…}}`. Types:
`execute-snapshot`, `stop-snapshot` (data-collections: tables; additional-conditions: filters), `pause-snapshot`,
`resume-snapshot`, and two of Tailorbird's own. `schema-set` (columns, primary-key) supplies the schema of a table in
quarantine. `mend-rows` (keys, as in records) re-reads rows of one table and corrects them in its topic. The offset of
the last signal is committed with the position, so each signal is executed once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from cdc.model.schema import Column, column_from_json
from ingest.events.log_events import Row, TableDescribed
from ingest.events.tables import Tables
from ingest.records.snapshots import REPAIRS_ONLY, Snapshots

TYPES = ("execute-snapshot", "stop-snapshot", "pause-snapshot", "resume-snapshot", "schema-set", "mend-rows")
READS = ("execute-snapshot", "mend-rows")  # types that read tables
ONLY_REPORTED = "the source has no table that could be read again"


@dataclass(frozen=True, slots=True, kw_only=True)
class Signal:
    """One signal. `tables` are `database.table`; `filters` are SQL conditions by table; `keys` identify rows to
    repair."""

    type: str
    tables: tuple[str, ...] = ()
    filters: Mapping[str, str] = field(default_factory=dict)
    columns: tuple[Column, ...] = ()
    primary_key: tuple[str, ...] = ()
    keys: tuple[Row, ...] = ()

    def described(self, tables: Tables) -> TableDescribed:
        """Return the new schema that a `schema-set` contains for its one table."""
        return TableDescribed(tables.named(self.tables[0]), self.columns, self.primary_key)

    def execute(self, snapshots: Snapshots, tables: Tables, number: Callable[[], int]) -> str:
        """Execute the signal. Returns why it is refused, or "". `number` takes the next sequence number."""
        if self.type in ("pause-snapshot", "resume-snapshot"):
            snapshots.paused = self.type == "pause-snapshot"
            return ""
        if self.type not in TYPES:
            return f"type {self.type} is none of {', '.join(TYPES)}"
        refused = []
        for name in self.tables:
            found = tables.named(name)
            if not tables.captured(found.database, found.table):
                refused.append(f"{name} is not captured")
                continue
            if self.type == "execute-snapshot":
                where = self.filters.get(name, "")
                snapshots.start(found, where=where, marker=REPAIRS_ONLY if where else number())
            else:
                snapshots.stop(found)
        return "; ".join(refused)


class Signals(Protocol):
    """Reader of the signals to one source."""

    def read(self, start: int | None) -> tuple[list[Signal], int | None]:
        """Return the signals since an offset (None: only new ones), and the next offset. Never blocks."""


class ClosableSignals(Signals, Protocol):
    """Signals over a connection that must be closed."""

    def close(self) -> None:
        """Forget the connection."""


def signal_of(value: Mapping[str, Any]) -> Signal:
    """Read a signal from a record's value. Raises KeyError, TypeError or ValueError if it is malformed."""
    data = value.get("data") or {}
    filters = {c["data-collection"]: c["filter"] for c in data.get("additional-conditions", ())}
    tables = tuple(data.get("data-collections", ()))
    texts = (value["type"], *tables, *filters, *filters.values())
    if not all(isinstance(text, str) for text in texts):
        raise ValueError("a signal's type, tables and conditions must be strings")
    columns = tuple(column_from_json(column) for column in data.get("columns", ()))
    key = tuple(data.get("primary-key", ()))
    if value["type"] == "schema-set" and (len(tables) != 1 or not columns):
        raise ValueError("schema-set needs one table and its columns")
    keys = tuple(data.get("keys", ()))
    if value["type"] == "mend-rows" and (len(tables) != 1 or not keys or not all(isinstance(k, dict) for k in keys)):
        raise ValueError("mend-rows needs one table and keys of its rows")
    return Signal(type=value["type"], tables=tables, filters=filters, columns=columns, primary_key=key, keys=keys)


def repair_value(table: str, keys: Sequence[Row]) -> dict[str, Any]:
    """Return the value of a `mend-rows` signal: `table` is `database.table`, `keys` are the keys of its rows."""
    return {"type": "mend-rows", "data": {"data-collections": [table], "keys": list(keys)}}


def signal_value(kind: str, tables: tuple[str, ...], where: str = "") -> dict[str, Any]:
    """Return the value of a signal of a type (`kind`) for some tables. `where` is a condition for a snapshot, or
    empty."""
    data: dict[str, Any] = {"data-collections": list(tables), "type": "incremental"}
    if where:
        data["additional-conditions"] = [{"data-collection": name, "filter": where} for name in tables]
    return {"type": kind, "data": data}
