"""Changes in Maxwell's JSON, for its consumers: `{"database", "table", "type", "ts", "data", "old"}`.

Values are MySQL's own: `2017-09-15 10:12:00.5`, decimals as texts (Maxwell's numbers lose digits), bytes in base64,
BIT(1) as 0 and 1. `old` has the changed columns. It cannot represent TRUNCATE. Source: Maxwell's documentation of its
data format.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from cdc.model.event import ChangeEvent
from cdc.model.schema import TableSchema
from cdc.model.types import Canonical, LogicalType

_TYPES = {"c": "insert", "r": "bootstrap-insert", "u": "update", "d": "delete"}


def maxwell_writer(kind: LogicalType) -> Callable[[Any], Any]:
    """Return a function from the canonical value of a type to Maxwell's; not called for NULL."""
    match kind.kind:
        case "bool":
            return int
        case "date":
            return lambda value: value.removesuffix("Z")
        case "datetime" | "timestamp":
            return lambda value: value.removesuffix("Z").replace("T", " ")
        case _:
            return lambda value: value


def maxwell_reader(kind: LogicalType) -> Callable[[Any], Any]:
    """Return the inverse function of `maxwell_writer`."""
    match kind.kind:
        case "bool":
            return bool
        case "date":
            return lambda value: f"{value}Z"
        case "datetime" | "timestamp":
            return lambda value: value.replace(" ", "T") + "Z"
        case _:
            return lambda value: value


class MaxwellWriter:
    """Writes the changes of one table under one schema in Maxwell's format."""

    def __init__(self, schema: TableSchema) -> None:
        self._key = schema.primary_key
        self._table = {"database": schema.table_id.database, "table": schema.table_id.table}
        self._columns = [(column.name, maxwell_writer(column.type)) for column in schema.columns]

    def key(self, event: ChangeEvent) -> dict[str, Any] | None:
        """Return the record key in Maxwell's `pk.` form; None for a change that the format cannot represent."""
        row = event.after if event.after is not None else event.before
        if row is None:
            return None
        values = self._values(row)
        return {**self._table, **{f"pk.{name}": values.get(name) for name in self._key}}

    def value(self, event: ChangeEvent) -> dict[str, Any] | None:
        """Return the record value; None for a change that the format cannot represent: TRUNCATE, or a delete without
        old values."""
        row = event.after if event.op != "d" else event.before
        if event.op not in _TYPES or row is None:
            return None
        source, transaction = event.source, event.transaction
        data = self._values(row)
        record: dict[str, Any] = {
            **self._table,
            "type": _TYPES[event.op],
            "ts": source.ts_ms // 1000,
            "server_id": source.server_id,
            "position": f"{source.file}:{source.pos}",
            **({"gtid": source.gtid} if source.gtid is not None else {}),
            **({"xoffset": transaction.total_order} if transaction is not None else {}),
            "data": data,
        }
        if event.op == "u" and event.before is not None:
            before = self._values(event.before)
            record["old"] = {name: value for name, value in before.items() if data.get(name) != value}
        return record

    def _values(self, row: Mapping[str, Canonical]) -> dict[str, Any]:
        return {
            name: None if row[name] is None else report(row[name]) for name, report in self._columns if name in row
        }  # fmt: skip
