"""A table's query as a question to DuckDB: the same SELECT, over tables that stand for the captured ones.

What it names is found as the compiler finds it: queries of WITH, other tables of the topology, captured tables. Its
aggregates mean what Spark's do (`joins.truth.sql_aggregates`).
"""

from __future__ import annotations

from collections.abc import Mapping

import sqlglot
from sqlglot import exp

from cdc.topology.topology import Table, Topology
from cdc.words.schema import TableId, TableSchema
from joins.query.spatial import SPATIAL_FUNCTIONS, spark_sql
from joins.query.windows import TimeWindow, seconds_of
from joins.select.compiler import ties_of
from joins.select.sql import place_of
from joins.select.tokens import statements_of
from joins.truth.sql_aggregates import TypesOf, rewritten


def question(
    topology: Topology,
    table: Table,
    names: Mapping[TableId, str],
    types_of: TypesOf,
    schemas: Mapping[TableId, TableSchema],
) -> str:
    """DuckDB's SQL of a table's query; `names` are DuckDB's tables, KeyError for a captured one that has none.

    Rows that are numbered by an order that leaves some equal are told apart as the compiler does it, by `schemas`.
    """
    return rewritten(_Query(topology, names, schemas).of(table), types_of).sql("duckdb")


def typed(select: exp.Select, expressions: list[exp.Expr]) -> str:
    """DuckDB's SQL of a SELECT that has these expressions instead of its columns: their types are to be asked for."""
    asked = select.copy()
    named = [exp.alias_(node.copy(), f"c{i}") for i, node in enumerate(expressions)]
    for key, value in (("distinct", None), ("having", None), ("qualify", None), ("expressions", named)):
        asked.set(key, value)
    return asked.sql("duckdb")


class _Query:
    """Queries with tables of DuckDB, and with other queries, in the place of what they name."""

    def __init__(
        self, topology: Topology, names: Mapping[TableId, str], schemas: Mapping[TableId, TableSchema]
    ) -> None:
        self._topology, self._names, self._schemas = topology, names, schemas

    def of(self, table: Table) -> exp.Expr:
        """A table's query."""
        query = statements_of(table.query)[0]
        assert query is not None  # a table's query was compiled
        for node in list(query.find_all(TimeWindow)):
            length = exp.Interval(this=exp.Literal.string(seconds_of(node)), unit=exp.var("SECOND"))
            node.replace(exp.Anonymous(this="time_bucket", expressions=[length, node.this]))
        for call in list(query.find_all(*SPATIAL_FUNCTIONS)):
            call.replace(sqlglot.parse_one(spark_sql(call, call.this.sql("spark")), read="spark"))
        self._number(query, table)
        named = query.args.get("with_")
        query.set("with_", None)
        found: dict[str, exp.Expr] = {}
        for one in [] if named is None else named.expressions:
            found[one.alias] = self._over_sources(one.this, found)
        return self._over_sources(query, found)

    def _number(self, query: exp.Expr, table: Table) -> None:
        """Have every ROW_NUMBER() end its ties by its rows' key, and be of Spark's type."""
        if query.find(exp.Window) is None:
            return
        ties = ties_of(self._topology, table, self._schemas)
        for select in query.find_all(exp.Select):
            _qualify(select)
        for window in list(query.find_all(exp.Window)):
            ordered = window.args["order"]
            key = ties[place_of(table.name, window)]
            more = [exp.Ordered(this=node.copy(), desc=False, nulls_first=True) for node in key]
            ordered.set("expressions", [*ordered.expressions, *more])
            window.replace(exp.cast(window.copy(), "INT"))

    def _over_sources(self, query: exp.Expr, named: Mapping[str, exp.Expr]) -> exp.Expr:
        for node in list(query.find_all(exp.Table)):
            parts = tuple(part.name for part in node.parts)
            table_id = self._topology.table_id(parts)
            read: exp.Expr
            if len(parts) == 1 and parts[0] in named:
                read = exp.Subquery(this=named[parts[0]].copy())
            elif table_id is None:
                read = exp.Subquery(this=self.of(self._topology.tables[parts[0]]))
            else:
                read = exp.to_table(self._names[table_id])
            node.replace(exp.alias_(read, node.alias_or_name, table=True))
        return query


def _qualify(select: exp.Select) -> None:
    """Have QUALIFY ask the number itself: DuckDB takes its name for a column of FROM where there is one."""
    asked = select.args.get("qualify")
    numbers = {one.alias: one.this for one in select.expressions if isinstance(one.unalias(), exp.Window)}
    for column in list(asked.find_all(exp.Column)) if asked is not None else ():
        if not column.table and column.name in numbers and column.find_ancestor(exp.Window) is None:
            column.replace(numbers[column.name].copy())
