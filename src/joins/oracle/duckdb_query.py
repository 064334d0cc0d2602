"""Translate a table's query to DuckDB's SQL, over DuckDB tables with the contents of the captured tables.

Names are resolved as the compiler does: WITH queries, other tables of the topology, captured tables. Expressions
keep the results of the join (`joins.oracle.scalars`)."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass

from sqlglot import exp

from cdc.model.schema import TableId, TableSchema
from cdc.model.types import LogicalType
from cdc.topology.topology import Table, Topology
from joins.oracle.called import Collected, Scalar, Shown
from joins.oracle.scalars import Scalars
from joins.oracle.window_calls import TIES
from joins.query.windows import call_of
from joins.select.compiler import ties_of
from joins.select.names import same_name, sources_of
from joins.select.sql import place_of
from joins.select.tokens import statements_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """The SQL of a table's query for DuckDB, and the functions that must be created in DuckDB first.

    `columns` are the columns of the result, each with the functions that it depends on. `rows` are the functions
    that decide which rows the result has."""

    sql: str
    functions: Mapping[str, Scalar | Collected]
    columns: tuple[Shown, ...]
    rows: frozenset[str]

    def unknown(self, reasons: Mapping[str, str]) -> tuple[str, dict[str, str]]:
        """Return why the whole result is unknown (empty: it is known), and the unknown columns with reasons.

        `reasons` says by function why it could not compute some value."""
        missing = {name: reason for name, reason in reasons.items() if name in self.functions}
        whole = next((self._why(name, missing) for name in sorted(self.rows) if name in missing), "")
        columns = {
            column.name: self._why(name, missing)
            for column in self.columns
            for name in sorted(column.deps & missing.keys())[:1]
        }
        return whole, columns

    def _why(self, name: str, reasons: Mapping[str, str]) -> str:
        return f"{self.functions[name].text}: {reasons[name]}"


def question(
    topology: Topology,
    table: Table,
    names: Mapping[TableId, str],
    columns: Mapping[TableId, Mapping[str, LogicalType]],
    schemas: Mapping[TableId, TableSchema],
    now: str,
) -> Question:
    """Translate a table's query. `names` are DuckDB's tables by captured table, `columns` their columns and types.
    `now` is the timestamp that `now()` means; if it is empty, conditions on the time are unknown.

    Raises KeyError if a captured table is missing. If ROW_NUMBER() leaves ties, they are broken as the compiler
    does, which needs the `schemas`."""
    query = _Query(topology, names, schemas, now).of(table)
    scalars = Scalars({name: columns[table_id] for table_id, name in names.items()})
    asked = scalars.query(query)
    return Question(sql=query.sql("duckdb"), functions=scalars.functions, columns=asked.columns, rows=asked.rows)


def moment_text(clock_ms: int) -> str:
    """Return milliseconds since 1970 as the text of a timestamp in UTC."""
    moment = dt.datetime(1970, 1, 1) + dt.timedelta(milliseconds=clock_ms)
    return moment.isoformat(sep=" ", timespec="milliseconds")


# names that sqlglot does not know, or takes for something else
_NAMES: Mapping[str, type[exp.Func]] = {"every": exp.LogicalAnd, "some": exp.LogicalOr, "mean": exp.Avg}


_SOURCE = "source"  # in the metadata of a table: it is DuckDB's


class _Query:
    """Replaces table names in queries by DuckDB's tables, or by the queries of other joined tables."""

    def __init__(
        self, topology: Topology, names: Mapping[TableId, str], schemas: Mapping[TableId, TableSchema], now: str
    ) -> None:
        self._topology, self._names, self._schemas, self._now = topology, names, schemas, now

    def of(self, table: Table) -> exp.Expr:
        """Return the query of a joined table, with all names replaced."""
        query = statements_of(table.query, table.row_key, now=self._now)[0]
        assert query is not None  # a table's query was compiled
        for node in list(query.find_all(exp.Anonymous, exp.Any)):
            kind = _NAMES.get("some" if isinstance(node, exp.Any) else node.name.lower())
            if kind is not None:
                node.replace(kind(this=node.this if isinstance(node, exp.Any) else node.expressions[0]))
        for select in query.find_all(exp.Select):
            for place, source in enumerate(sources_of(select)):
                if isinstance(source, exp.Subquery) and not source.alias:  # as the parser names it
                    source.set("alias", exp.TableAlias(this=exp.to_identifier(f"query{place}")))
        self._number(query, table)
        return self._over_sources(query, {})

    def _number(self, query: exp.Expr, table: Table) -> None:
        """Add the key of the rows to ORDER BY of each window function that depends on the order of equal rows.

        `joins.oracle.window_calls` reads from the metadata how many entries were added."""
        if query.find(exp.Window) is None:
            return
        ties = ties_of(self._topology, table, self._schemas)
        for select in query.find_all(exp.Select):
            _qualify(select)
        for window in query.find_all(exp.Window):
            key = ties.get(place_of(table.name, window), ())
            if not key or not call_of(window).needs_ties:
                continue
            if window.args.get("order") is None:
                window.set("order", exp.Order(expressions=[]))
            more = [exp.Ordered(this=node.copy(), desc=False, nulls_first=True) for node in key]
            ordered = window.args["order"]
            ordered.set("expressions", [*ordered.expressions, *more])
            window.meta[TIES] = len(more)

    def _over_sources(self, query: exp.Expr, around: Mapping[str, exp.Expr]) -> exp.Expr:
        """Replace the names of tables in a query, in place. `around` are the queries of WITH that it can name."""
        named, own = dict(around), query.args.get("with_")
        query.set("with_", None)
        for one in [] if own is None else own.expressions:
            named[one.alias] = self._over_sources(one.this, named)
        while (inner := next((one for one in query.find_all(exp.Query) if one.args.get("with_")), None)) is not None:
            self._over_sources(inner, named)
        for node in list(query.find_all(exp.Table)):
            if _SOURCE not in node.meta:
                node.replace(exp.alias_(self._read(node, named), node.alias_or_name, table=True))
        return query

    def _read(self, node: exp.Table, named: Mapping[str, exp.Expr]) -> exp.Expr:
        """Return DuckDB's table, or the query, that a name means."""
        parts = tuple(part.name for part in node.parts)
        if len(parts) == 1 and parts[0] in named:
            return exp.Subquery(this=named[parts[0]].copy())
        if (table_id := self._topology.table_id(parts)) is None:
            return exp.Subquery(this=self.of(self._topology.tables[parts[0]]))
        table = exp.to_table(self._names[table_id])
        table.meta[_SOURCE] = True
        return table


def _qualify(select: exp.Select) -> None:
    """Replace names of result columns in QUALIFY. DuckDB would prefer a column of FROM with the same name."""
    asked = select.args.get("qualify")
    named = {one.alias: one.this for one in select.expressions if isinstance(one, exp.Alias)}
    for column in list(asked.find_all(exp.Column)) if asked is not None else ():
        name = None if column.table else same_name(named, column.name)
        if name is not None and column.find_ancestor(exp.Window) is None:
            column.replace(exp.Paren(this=named[name].copy()))
