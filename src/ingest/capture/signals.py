"""Signals to a running capture, as Debezium's Kafka signal channel has them; pure.

A signal is a record of the topic `…signals`: key = `<topology>.<source>`, value = `{"type": …, "data": {…}}`. Types:
`execute-snapshot`, `stop-snapshot` (data-collections: tables; additional-conditions: filters), `pause-snapshot`,
`resume-snapshot`; and of our own `schema-set` (columns, primary-key), which ends a quarantine, and `mend-rows` (keys,
as records have them): one table's rows are read again and set right in its topic. How far signals were obeyed is
committed with the position, so each is obeyed once.
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
READS = ("execute-snapshot", "mend-rows")  # those that need a table that can be read beside the log
ONLY_REPORTED = "its rows are told once, there is no table to read again"


@dataclass(frozen=True, slots=True, kw_only=True)
class Signal:
    """One signal; `tables` are `database.table`, `filters` conditions by table."""

    type: str
    tables: tuple[str, ...] = ()
    filters: Mapping[str, str] = field(default_factory=dict)
    columns: tuple[Column, ...] = ()
    primary_key: tuple[str, ...] = ()
    keys: tuple[Row, ...] = ()

    def described(self, tables: Tables) -> TableDescribed:
        """What a `schema-set` says of its one table."""
        return TableDescribed(tables.named(self.tables[0]), self.columns, self.primary_key)

    def obey(self, snapshots: Snapshots, tables: Tables, number: Callable[[], int]) -> str:
        """Do as it says; the reason why not, or an empty text. `number` gives the next one of the sequence."""
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
    """Where signals come from."""

    def read(self, start: int | None) -> tuple[list[Signal], int | None]:
        """Signals from an offset on (None: those that come from now on), and the offset behind them; never waits."""


def signal_of(value: Mapping[str, Any]) -> Signal:
    """A record's value as a signal; KeyError, TypeError or ValueError when it is none."""
    data = value.get("data") or {}
    filters = {c["data-collection"]: c["filter"] for c in data.get("additional-conditions", ())}
    tables = tuple(data.get("data-collections", ()))
    if not isinstance(value["type"], str) or not all(isinstance(name, str) for name in tables):
        raise ValueError("a signal's type and tables are texts")
    columns = tuple(column_from_json(column) for column in data.get("columns", ()))
    key = tuple(data.get("primary-key", ()))
    if value["type"] == "schema-set" and (len(tables) != 1 or not columns):
        raise ValueError("schema-set takes one table and its columns")
    keys = tuple(data.get("keys", ()))
    if value["type"] == "mend-rows" and (len(tables) != 1 or not keys or not all(isinstance(k, dict) for k in keys)):
        raise ValueError("mend-rows takes one table and keys of its rows")
    return Signal(type=value["type"], tables=tables, filters=filters, columns=columns, primary_key=key, keys=keys)


def repair_value(table: str, keys: Sequence[Row]) -> dict[str, Any]:
    """The value of a record that asks for rows of a table (`database.table`) to be set right."""
    return {"type": "mend-rows", "data": {"data-collections": [table], "keys": list(keys)}}


def signal_value(kind: str, tables: tuple[str, ...], where: str = "") -> dict[str, Any]:
    """The value of a record that carries a signal."""
    data: dict[str, Any] = {"data-collections": list(tables), "type": "incremental"}
    if where:
        data["additional-conditions"] = [{"data-collection": name, "filter": where} for name in tables]
    return {"type": kind, "data": data}
