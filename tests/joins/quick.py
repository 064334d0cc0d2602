"""The oracle and the evaluator for very many small cases: one DuckDB for all of them, and nothing computed twice."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any

import duckdb

from cdc.schema import TableSchema
from cdc.types import Canonical, LogicalType
from joins.records import Values
from joins.sql_evaluate import Evaluator, duckdb_type
from joins.sql_oracle import Oracle


@cache
def database() -> duckdb.DuckDBPyConnection:
    """The one database of this process: to open one takes as long as a case does."""
    made = duckdb.connect()
    made.execute("SET threads = 1")
    return made


class QuickOracle(Oracle):
    """Answers over a handful of rows, written as one statement."""

    def _insert(self, name: str, schema: TableSchema, rows: Iterable[Mapping[str, Canonical]]) -> None:
        texts = [", ".join(_literal(c.type, row[c.name]) for c in schema.columns) for row in rows]
        if texts:
            self._database.execute(f"INSERT INTO {name} VALUES {', '.join(f'({text})' for text in texts)}")


class QuickEvaluator(Evaluator):
    """Remembers what an expression gave for the values that it reads: there are few, and they come again."""

    def __init__(self) -> None:
        self._database = database().cursor()
        self._known: dict[str, list[Any]] = {}

    def _values(self, texts: list[str], types: Sequence[LogicalType], rows: Sequence[Values]) -> list[list[Any]]:
        if texts == ["TRUE"]:
            return [[True] for _ in rows]
        used = [i for i in range(len(types)) if any(f"{{{i}}}" in text for text in texts)]
        begins = json.dumps([texts, [str(types[i]) for i in used]])
        keys = [begins + json.dumps([row[i] for i in used]) for row in rows]
        new = {key: row for key, row in zip(keys, rows, strict=True) if key not in self._known}
        if new:
            self._known |= zip(new, super()._values(texts, types, list(new.values())), strict=True)
        return [self._known[key] for key in keys]


@cache
def evaluator() -> QuickEvaluator:
    """The one of this process."""
    return QuickEvaluator()


def _literal(type_: LogicalType, value: Canonical) -> str:
    """A canonical value as DuckDB's SQL."""
    if value is None:
        return "NULL"
    if isinstance(value, bool | int | float):
        return str(value)
    text = str(value)
    if duckdb_type(type_) in ("DATE", "TIMESTAMP"):
        text = text.removesuffix("Z")
    quoted = text.replace("'", "''")
    return f"'{quoted}'"
