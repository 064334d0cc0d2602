"""Evaluate the expressions of a plan in DuckDB, for the simulation. In production Spark does it
(`joins.engine.spark_expressions`).

sqlglot translates the plan's Spark SQL, and `try_` forms become DuckDB's operators. Compare results only for
expressions on which both systems agree (docs/adr/0009)."""

from __future__ import annotations

import base64
import datetime as dt
import decimal
import zlib
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import duckdb
import sqlglot
from duckdb.sqltypes import BIGINT, VARCHAR
from sqlglot import exp

from cdc.model.types import Canonical, LogicalType, float_of
from cdc.stored.values import datetime_of
from joins.oracle.duckdb_types import duckdb_type, native
from joins.query.nodes import Expression, Node
from joins.query.plan import Finish
from joins.runtime.records import Values

_TRY: dict[str, type[exp.Binary]] = {"TRY_MOD": exp.Mod}
_SAFE: dict[type[exp.Expr], type[exp.Binary]] = {
    exp.SafeAdd: exp.Add,
    exp.SafeSubtract: exp.Sub,
    exp.SafeMultiply: exp.Mul,
    exp.SafeDivide: exp.Div,
}


def open_database() -> duckdb.DuckDBPyConnection:
    """Return an in-memory database with the functions of Spark that DuckDB lacks."""
    database = duckdb.connect()
    database.create_function("crc32", lambda text: zlib.crc32(text.encode()), [VARCHAR], BIGINT)
    return database


class Evaluator:
    """Evaluates expressions over rows of canonical values, in an in-memory database. Call `close` at the end."""

    def __init__(self) -> None:
        self._database = open_database()

    def close(self) -> None:
        """Close the database."""
        self._database.close()

    def holds(self, condition: Expression, node: Node, rows: Sequence[Values]) -> list[bool]:
        """Return which rows of a node satisfy its filter."""
        return [found[0] is True for found in self._values([condition.sql], node.types, rows)]

    def finish(self, finish: Finish, rows: Sequence[Values]) -> list[tuple[Values, bool]]:
        """Return, per whole row, its values followed by the computed ones, and whether it satisfies WHERE."""
        texts = [expression.sql for expression in finish.computed]
        where = "TRUE" if finish.where is None else finish.where.sql
        found = self._values([*texts, where], finish.types, rows)
        return [([*row, *values[:-1]], values[-1] is True) for row, values in zip(rows, found, strict=True)]

    def _values(self, texts: list[str], types: Sequence[LogicalType], rows: Sequence[Values]) -> list[list[Any]]:
        if not rows:
            return []
        used = [i for i in range(len(types)) if any(f"{{{i}}}" in text for text in texts)]
        columns = "".join(f", c{i} {duckdb_type(types[i])}" for i in used)
        self._database.execute(f"CREATE OR REPLACE TABLE input (n INTEGER{columns})")
        marks = ", ".join("?" for _ in range(len(used) + 1))
        values = [[n, *(native(types[i], row[i]) for i in used)] for n, row in enumerate(rows)]
        self._database.executemany(f"INSERT INTO input VALUES ({marks})", values)
        wanted = ", ".join(translated(text, len(types)) for text in texts)
        found = self._database.execute(f"SELECT {wanted} FROM input ORDER BY n").fetchall()
        return [[canonical(value) for value in row] for row in found]


@lru_cache(maxsize=4096)
def translated(text: str, width: int) -> str:
    """Translate a plan's expression to DuckDB's SQL. Value i becomes the column `c<i>`."""
    parsed = sqlglot.parse_one(text.format(*(f"c{i}" for i in range(width))), read="spark")
    tree = exp.Paren(this=parsed)
    for node in reversed(list(tree.walk())):  # the innermost first
        if type(node) in _SAFE:
            node.replace(exp.Paren(this=_SAFE[type(node)](this=node.this, expression=node.expression)))
        elif isinstance(node, exp.Anonymous) and node.name.upper() in _TRY:
            first, second = node.expressions
            node.replace(exp.Paren(this=_TRY[node.name.upper()](this=first, expression=second)))
    return tree.sql("duckdb")


def canonical(value: Any) -> Canonical:
    """Convert a Python value from DuckDB to canonical form."""
    match value:
        case decimal.Decimal():
            return f"{value:f}"
        case dt.datetime():
            return datetime_of((value - dt.datetime(1970, 1, 1)) // dt.timedelta(microseconds=1))
        case dt.date():
            return value.isoformat() + "Z"
        case bytes():
            return base64.b64encode(value).decode()
        case list():
            return [canonical(member) for member in value]  # type: ignore[misc]  # a list has no NULL and no list in it
        case float():
            return float_of(value)
        case None | bool() | int() | str():
            return value
    raise TypeError(f"no canonical form for {type(value).__name__}")
