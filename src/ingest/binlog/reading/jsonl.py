"""Write changes as JSON lines: one object per row change, or per statement that drops, truncates or renames tables.

    {"op":"insert|update|delete","db":…,"table":…,"before":{column:value},"after":{column:value}}
    {"op":"truncate|drop","db":…,"table":…}    {"op":"rename","db":…,"table":…,"to_db":…,"to_table":…}

Bytes are {"b64": …}; times and decimals are texts. A JSON object or array is written as it is, and any other JSON
document as its text, so that a JSON null differs from NULL. A partial update is {"$json_diff": […]}, unless the earlier
document is known.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from decimal import Decimal
from typing import Any, Final

import orjson

from ingest.binlog.format.codes import ColumnType
from ingest.binlog.format.flavour import ABSENT, EnumIndex, SetMask
from ingest.binlog.format.tablemap import TableMap
from ingest.binlog.json.diff import JsonDiffs, apply_diffs
from ingest.binlog.json.jsonb import JSON_NULL
from ingest.binlog.reading.effects import effects
from ingest.binlog.reading.reader import Change, Statement
from ingest.binlog.reading.stream import RowBatch
from ingest.binlog.rows.convert import json_dumps

_JSON: Final = ColumnType.JSON
_LARGEST_INTEGER: Final = (1 << 64) - 1


def _default(value: Any) -> Any:
    if isinstance(value, bytes):
        return {"b64": base64.b64encode(value).decode("ascii")}
    if isinstance(value, EnumIndex):
        return {"enum_index": int(value)}
    if isinstance(value, SetMask):
        return {"set_mask": int(value)}
    if isinstance(value, Decimal):
        return orjson.Fragment(format(value, "f"))
    if value is JSON_NULL:
        return "null"
    if isinstance(value, JsonDiffs):
        return {"$json_diff": [_diff(diff) for diff in value.diffs]}
    raise TypeError(f"{type(value).__name__} in a row")


def _diff(diff: Any) -> dict[str, Any]:
    entry = {"op": diff.operation, "path": diff.path}
    return entry if diff.operation == "remove" else {**entry, "value": diff.value}


def _dump(value: dict[str, Any]) -> bytes:
    return orjson.dumps(value, default=_default, option=orjson.OPT_PASSTHROUGH_SUBCLASS | orjson.OPT_NON_STR_KEYS)


class JsonLines:
    """Converts changes into JSON lines. It remembers the tables so far, because DROP DATABASE does not list them.

    `warnings` collects changes that have no line: those of rows by partition DDL.
    """

    def __init__(self) -> None:
        self._tables: dict[tuple[str, str], None] = {}
        self._json_columns: dict[int, tuple[TableMap, tuple[str, ...]]] = {}
        self.warnings: list[str] = []

    def lines(self, change: Change) -> Iterator[bytes]:
        """Yield the lines of one change, without line ends; none for the end of a transaction."""
        if isinstance(change, RowBatch):
            yield from self._rows(change)
        elif isinstance(change, Statement):
            for entry in self._statement(change):
                yield _dump(entry)

    def _rows(self, batch: RowBatch) -> Iterator[bytes]:
        table = batch.decoder.table
        self._tables[table.database, table.table] = None
        columns = self._json_of(table)
        head = {"op": batch.operation, "db": table.database, "table": table.table}
        if batch.operation == "update":
            for before, after in batch.rows:
                if columns:
                    _settle(before, after, columns)
                yield _dump({**head, "before": before, "after": after})
            return
        image = "after" if batch.operation == "insert" else "before"
        for row in batch.rows:
            if columns:
                _settle(row, row, columns)
            yield _dump({**head, image: row})

    def _json_of(self, table: TableMap) -> tuple[str, ...]:
        known = self._json_columns.get(id(table))
        if known is None or known[0] is not table:
            names = tuple(column.name for column in table.columns if column.type is _JSON)
            if len(self._json_columns) > 10_000:
                self._json_columns.clear()
            known = self._json_columns[id(table)] = (table, names)
        return known[1]

    def _statement(self, statement: Statement) -> Iterator[dict[str, Any]]:
        for effect in effects(statement.database, statement.text):
            key = (effect.database, effect.table)
            head = {"op": effect.kind, "db": effect.database, "table": effect.table}
            if effect.kind == "create":
                self._tables[key] = None
            elif effect.kind == "drop_database":
                gone = [table for table in self._tables if table[0] == effect.database]
                for database, table in gone:
                    del self._tables[database, table]
                    yield {"op": "drop", "db": database, "table": table}
            elif effect.kind == "partition":
                self.warnings.append(
                    f"{statement.raw.where}: rows of {effect.database}.{effect.table} were removed with a partition"
                )
            elif effect.kind == "rename" and effect.to:
                self._tables.pop(key, None)
                self._tables[effect.to] = None
                yield {**head, "to_db": effect.to[0], "to_table": effect.to[1]}
            else:
                if effect.kind == "drop":
                    self._tables.pop(key, None)
                yield head


def _settle(before: dict[str, Any], after: dict[str, Any], columns: tuple[str, ...]) -> None:
    """Convert JSON values so that JSON null differs from NULL, and apply partial updates if the earlier document is
    known."""
    for name in columns:
        new = after.get(name, ABSENT)
        old = before.get(name, ABSENT)
        if isinstance(new, JsonDiffs) and old is not ABSENT and old is not None:
            new = after[name] = apply_diffs(old, new)
        if (
            before is not after
            and old is not None
            and not isinstance(old, dict | list | JsonDiffs)
            and old is not ABSENT
        ):
            before[name] = json_dumps(old)
        if new is not None and new is not ABSENT and not isinstance(new, dict | list | JsonDiffs):
            after[name] = json_dumps(new)
