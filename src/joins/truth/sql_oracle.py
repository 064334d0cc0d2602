"""The right answer of a query, by DuckDB: the topology's own SELECT over whole tables of canonical values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import duckdb
import pyarrow as pa
from sqlglot import exp

from cdc.topology.topology import Table, Topology
from cdc.words.schema import TableId, TableSchema
from cdc.words.types import Canonical
from joins.truth.oracle import Rows
from joins.truth.question import question, typed
from joins.truth.sql_aggregates import MACROS
from joins.truth.sql_evaluate import canonical, duckdb_type, native

Answer = dict[tuple[Canonical, ...], dict[str, Canonical]]


class Oracle:
    """Answers the queries of one topology; one in-memory database with the schemas' tables, closed by `close`.

    A `database` that is given is used instead, and its tables `source_<n>` are made anew.
    """

    def __init__(
        self,
        topology: Topology,
        schemas: Mapping[TableId, TableSchema],
        database: duckdb.DuckDBPyConnection | None = None,
    ) -> None:
        self._topology, self._schemas = topology, schemas
        self._database = duckdb.connect() if database is None else database.cursor()
        self._texts: dict[str, str] = {}
        prepare(self._database)
        self._names = {table: f"source_{n}" for n, table in enumerate(schemas)}
        for table, name in self._names.items():
            self._create(name, schemas[table])

    def close(self) -> None:
        """Let go of the database."""
        self._database.close()

    def answer(self, table: Table, row_key: tuple[str, ...], tables: Mapping[TableId, Rows]) -> Answer:
        """Row key → columns of the result; ValueError if the row key is none."""
        if table.name not in self._texts:
            self._texts[table.name] = question(self._topology, table, self._names, self._types_of, self._schemas)
        cursor = self._asked(self._texts[table.name], tables)
        names = [column[0] for column in cursor.description or []]
        answer: Answer = {}
        for found in cursor.fetchall():
            row = dict(zip(names, map(canonical, found), strict=True))
            key = tuple(row[name] for name in row_key)
            if key in answer:
                raise ValueError(f"two rows of {table.name} have the key {key}")
            answer[key] = row
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
        """Through Arrow: row by row a million of them would take half an hour. DuckDB casts as it inserts."""
        types = [pa.uint64() if column.type.kind == "uint64" else None for column in schema.columns]  # else a long
        columns = [
            pa.array([native(c.type, row[c.name]) for row in rows], type_)
            for c, type_ in zip(schema.columns, types, strict=True)
        ]
        self._database.register("rows", pa.table(columns, names=[c.name for c in schema.columns]))
        self._database.execute(f"INSERT INTO {name} SELECT * FROM rows")
        self._database.unregister("rows")

    def _types_of(self, select: exp.Select, expressions: list[exp.Expr]) -> list[str]:
        """DuckDB's types of expressions of a SELECT."""
        cursor = self._asked(typed(select, expressions), {table: {} for table in self._schemas})
        return [str(column[1]) for column in cursor.description or []]


def prepare(database: duckdb.DuckDBPyConnection) -> None:
    """Make a database ready for a `question`."""
    # DuckDB 2.0 takes the columns of one join for those of another where a table is joined twice by one column, and
    # loses the condition c of `a LEFT JOIN b ON … AND c WHERE b.id IS NULL`
    database.execute("SET disabled_optimizers = 'common_subplan,outer_join_simplification'")
    database.execute(MACROS)
