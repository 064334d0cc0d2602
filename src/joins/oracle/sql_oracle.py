"""Compute the expected result of a query with DuckDB: it runs the query over whole tables of canonical values."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from typing import Any

import duckdb
import pyarrow as pa

from cdc.model.schema import TableId, TableSchema
from cdc.model.types import Canonical, LogicalType
from cdc.topology.topology import Table, Topology
from joins.evaluate.stored import to_canonical
from joins.evaluate.unknown import UnknownValue
from joins.oracle.duckdb_query import Question, moment_text, question
from joins.oracle.duckdb_types import duckdb_type, native
from joins.oracle.oracle import Rows
from joins.oracle.sql_functions import Functions, from_arrow
from joins.query.value_types import family

Answer = dict[tuple[Canonical, ...], dict[str, Canonical]]


class Oracle:
    """Answers the queries of one topology from an in-memory DuckDB. Call `close` at the end.

    A given `database` is used instead: its tables `source_<n>` are recreated, and `functions` are those that it has."""

    def __init__(
        self,
        topology: Topology,
        schemas: Mapping[TableId, TableSchema],
        database: duckdb.DuckDBPyConnection | None = None,
        functions: Functions | None = None,
    ) -> None:
        self._topology, self._schemas = topology, schemas
        self._database = duckdb.connect() if database is None else database.cursor()
        self._questions: dict[tuple[str, int], Question] = {}
        self._functions = Functions(self._database) if functions is None else functions
        prepare(self._database)
        self._names = {table: f"source_{n}" for n, table in enumerate(schemas)}
        for table, name in self._names.items():
            self._create(name, schemas[table])

    def close(self) -> None:
        """Close the database."""
        self._database.close()

    def answer(
        self, table: Table, row_key: tuple[str, ...], tables: Mapping[TableId, Rows], clock_ms: int = 0
    ) -> Answer:
        """Return the columns of the result by row key. `clock_ms` is the time that `now()` means. Raises ValueError if
        two rows have one key, or a value is unknown."""
        asked = self._questions.get((table.name, clock_ms))
        if asked is None:
            columns = {t: {c.name: c.type for c in schema.columns} for t, schema in self._schemas.items()}
            asked = question(self._topology, table, self._names, columns, self._schemas, moment_text(clock_ms))
            self._questions[table.name, clock_ms] = asked
        self._functions.reasons.clear()
        self._functions.register(asked.functions)
        answer: Answer = {}
        for row in rows_of(self._asked(asked.sql, tables), asked):
            key = tuple(row[name] for name in row_key)
            if key in answer:
                raise ValueError(f"two rows of {table.name} have the key {key}")
            answer[key] = row
        if self._functions.reasons:
            raise ValueError(f"unknown values: {asked.unknown(self._functions.reasons)}")
        return answer

    def _create(self, name: str, schema: TableSchema) -> None:
        columns = ", ".join(f'"{c.name}" {duckdb_type(c.type)}' for c in schema.columns)
        self._database.execute(f"CREATE OR REPLACE TABLE {name} ({columns})")

    def _asked(self, text: str, tables: Mapping[TableId, Rows]) -> duckdb.DuckDBPyConnection:
        for table_id, name in self._names.items():
            self._database.execute(f"DELETE FROM {name}")
            self._insert(name, self._schemas[table_id], tables[table_id].values())
        return self._database.execute(text)

    def _insert(self, name: str, schema: TableSchema, rows: Iterable[Mapping[str, Canonical]]) -> None:
        """Insert rows through Arrow, which takes seconds for a million rows. DuckDB casts the values."""
        types = [pa.uint64() if column.type.kind == "uint64" else None for column in schema.columns]  # default: a long
        columns = [
            pa.array([native(c.type, row[c.name]) for row in rows], type_)
            for c, type_ in zip(schema.columns, types, strict=True)
        ]
        self._database.register("rows", pa.table(columns, names=[c.name for c in schema.columns]))
        self._database.execute(f"INSERT INTO {name} SELECT * FROM rows")
        self._database.unregister("rows")


def rows_of(cursor: duckdb.DuckDBPyConnection, asked: Question) -> list[dict[str, Canonical]]:
    """Return the rows of a result in canonical values. Raises ValueError for a value that has no canonical form."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # about a copy
        found: Any = cursor.to_arrow_table()
    names = [column.name for column in asked.columns]
    columns = [
        [_stored(shown.type, value) for value in from_arrow(shown.type, column)]
        for shown, column in zip(asked.columns, found.columns, strict=True)
    ]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def _stored(type_: LogicalType, value: Any) -> Canonical:
    """Return the value that the join stores: NULL, and a dead letter, for a time beyond the years 1 to 9999."""
    try:
        return to_canonical(type_, value)
    except UnknownValue:
        if family(type_) not in ("date", "moment"):
            raise
        return None


def prepare(database: duckdb.DuckDBPyConnection) -> None:
    """Configure a DuckDB database so that it can answer a `question`."""
    # DuckDB 2.0 confuses the columns of two joins of one table by the same column, and loses the condition c of
    # `a LEFT JOIN b ON … AND c WHERE b.id IS NULL`
    database.execute("SET disabled_optimizers = 'common_subplan,outer_join_simplification'")
