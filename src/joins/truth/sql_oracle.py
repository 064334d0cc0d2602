"""The right answer of a query, by DuckDB: the topology's own SELECT over whole tables of canonical values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import duckdb
import pyarrow as pa
import sqlglot
from sqlglot import exp

from cdc.topology.topology import Table, Topology
from cdc.words.schema import TableId, TableSchema
from cdc.words.types import Canonical
from joins.truth.oracle import Rows
from joins.truth.sql_aggregates import MACROS, rewritten
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
        # DuckDB 2.0 takes the columns of one join for those of another where a table is joined twice by one column
        self._database.execute("SET disabled_optimizers = 'common_subplan'")
        self._database.execute(MACROS)
        self._names = {table: f"source_{n}" for n, table in enumerate(schemas)}
        for table, name in self._names.items():
            self._create(name, schemas[table])

    def close(self) -> None:
        """Let go of the database."""
        self._database.close()

    def answer(self, table: Table, row_key: tuple[str, ...], tables: Mapping[TableId, Rows]) -> Answer:
        """Row key → columns of the result; ValueError if the row key is none."""
        if table.name not in self._texts:
            self._texts[table.name] = rewritten(self._query(table), self._types_of).sql("duckdb")
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
        named = [exp.alias_(node.copy(), f"c{i}") for i, node in enumerate(expressions)]
        asked = select.copy()
        for key, value in (("distinct", None), ("having", None), ("expressions", named)):
            asked.set(key, value)
        cursor = self._asked(asked.sql("duckdb"), {table: {} for table in self._schemas})
        return [str(column[1]) for column in cursor.description or []]

    def _query(self, table: Table) -> exp.Expr:
        query = sqlglot.parse_one(table.query, read="spark")
        named = query.args.get("with_")
        query.set("with_", None)
        found: dict[str, exp.Expr] = {}
        for one in [] if named is None else named.expressions:
            found[one.alias] = self._over_sources(one.this, found)
        return self._over_sources(query, found)

    def _over_sources(self, query: exp.Expr, named: Mapping[str, exp.Expr]) -> exp.Expr:
        """The query with tables of DuckDB, and other queries, in the place of what it names."""
        for node in list(query.find_all(exp.Table)):
            parts = tuple(part.name for part in node.parts)
            table_id = self._topology.table_id(parts)
            if len(parts) == 1 and parts[0] in named:
                inner = named[parts[0]].copy()
            elif table_id is None:
                inner = self._query(self._topology.tables[parts[0]])
            else:
                node.replace(exp.alias_(exp.to_table(self._names[table_id]), node.alias_or_name, table=True))
                continue
            node.replace(exp.alias_(exp.Subquery(this=inner), node.alias_or_name, table=True))
        return query
