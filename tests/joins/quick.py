"""Run the oracle and the evaluator for very many small cases: one DuckDB for all, one statement per question, and
cached
results."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any

import duckdb

from cdc.model.geometry import ewkt_of
from cdc.model.schema import TableId, TableSchema
from cdc.model.types import Canonical, LogicalType
from joins.oracle.duckdb_types import duckdb_type
from joins.oracle.oracle import Rows
from joins.oracle.sql_functions import Functions
from joins.oracle.sql_oracle import Oracle
from joins.runtime.records import Values
from tests.joins.evaluator import Evaluator, canonical, open_database, translated

_NUMBER = LogicalType(kind="int32")


@cache
def database() -> duckdb.DuckDBPyConnection:
    """Return this process's only database: opening one takes as long as a case."""
    made = open_database()
    made.execute("SET threads = 1")
    return made


@cache
def functions() -> Functions:
    """Return the expression functions of this process's database."""
    return Functions(database())


class QuickOracle(Oracle):
    """Answers over a handful of rows, which are literals in the statement."""

    def _create(self, name: str, schema: TableSchema) -> None:
        """Do nothing: there is no table."""

    def _asked(self, text: str, tables: Mapping[TableId, Rows]) -> duckdb.DuckDBPyConnection:
        given = []
        for table_id, name in self._names.items():
            if name not in text:
                continue
            columns = self._schemas[table_id].columns
            names = ", ".join('"' + column.name + '"' for column in columns)
            rows = [[row[column.name] for column in columns] for row in tables[table_id].values()]
            given.append(f"{name}({names}) AS ({_values([column.type for column in columns], rows)})")
        return self._database.execute(f"WITH {', '.join(given)} {text}")


class QuickEvaluator(Evaluator):
    """Caches an expression's results by the values that it reads: there are few, and they repeat."""

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
            self._known |= zip(new, self._found(texts, types, used, list(new.values())), strict=True)
        return [self._known[key] for key in keys]

    def _found(
        self, texts: list[str], types: Sequence[LogicalType], used: list[int], rows: list[Values]
    ) -> list[list[Any]]:
        wanted = ", ".join(translated(text, len(types)) for text in texts)
        values = _values(
            [_NUMBER, *(types[i] for i in used)], [[n, *(row[i] for i in used)] for n, row in enumerate(rows)]
        )
        names = "".join(f", c{i}" for i in used)
        found = self._database.execute(f"SELECT n, {wanted} FROM ({values}) AS _(n{names})").fetchall()
        return [[canonical(value) for value in row] for _, *row in sorted(found, key=lambda row: int(row[0]))]


@cache
def evaluator() -> QuickEvaluator:
    """Return this process's evaluator."""
    return QuickEvaluator()


def _values(types: Sequence[LogicalType], rows: Iterable[Sequence[Canonical]]) -> str:
    """Return rows as a DuckDB query with these types."""
    names = [duckdb_type(type_) for type_ in types]
    texts = [f"({', '.join(map(_literal, names, row))})" for row in rows]
    if texts:
        return f"VALUES {', '.join(texts)}"
    return f"SELECT {', '.join(f'NULL::{name}' for name in names)} WHERE false"


def _literal(name: str, value: Canonical) -> str:
    """Return a canonical value in DuckDB's SQL, of the type with that name."""
    if value is None or isinstance(value, bool | int | float):
        return f"{'NULL' if value is None else value}::{name}"
    value = ewkt_of(value) if isinstance(value, dict) else value
    text = str(value).removesuffix("Z") if name in ("DATE", "TIMESTAMP") else str(value)
    quoted = text.replace("'", "''")
    return f"from_base64('{quoted}')" if name == "BLOB" else f"'{quoted}'::{name}"
