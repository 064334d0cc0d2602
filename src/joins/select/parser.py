"""Stage 1 of the compilation of a query: parse its text to the supported shape (`joins.select.sql`).

Errors name the position in the query and the nearest form that works."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import NoReturn

from sqlglot import exp

from cdc.model.schema import TableId, TableSchema
from cdc.topology.copies import declared_tables
from cdc.topology.topology import Table, Topology
from joins.query.aggregates import aggregates_in
from joins.query.functions.registry import check_shape
from joins.query.typed import Unsupported
from joins.query.windows import windows_in
from joins.select.connected import factored, unconnected
from joins.select.rewrite.absent.anti_joins import is_never_null, with_anti_joins
from joins.select.rewrite.distinct_on import left_distinct_on
from joins.select.rewrite.outer_columns import columns_in, unknown_in_orders, with_outer_columns
from joins.select.rewrite.ranked import limited, ranked_by, ranking_in
from joins.select.rewrite.semijoin import Semijoin, semijoin_of
from joins.select.rewrite.subqueries import ScalarJoin, without_subqueries
from joins.select.sql import (
    FORM,
    Item,
    Join,
    Place,
    Query,
    Ranking,
    Relation,
    Select,
    Union,
    conjuncts,
    items_of,
    numbered,
    place_of,
    refuse,
    selects_of,
)
from joins.select.tokens import CLAUSES, KEPT, KINDS, LEFT_LIMITS, NOT_YET, statement_of


def parse_query(
    topology: Topology, table: Table, schemas: Mapping[TableId, TableSchema] | None = None, *, not_null: bool = False
) -> Query:
    """Parse a table's query; without `schemas` check its form. Raises TopologyError with place and nearest form.

    With `not_null`, rewrites use that columns of the `schemas` are NOT NULL: a LEFT JOIN whose row WHERE excludes is
    read as NOT EXISTS, and a FULL JOIN of groups needs no condition."""
    known = columns_in(topology, schemas)
    never_null = partial(is_never_null, topology, schemas) if not_null and schemas is not None else None
    statement = with_outer_columns(statement_of(topology, table, never_null), known)
    statement = statement if never_null is None else with_anti_joins(statement, never_null)
    for node in unknown_in_orders(table.query, known):
        what, expected = f"unknown column {node.sql('spark')} in ORDER BY", "a column of the result or of its tables"
        refuse(topology, place_of(table.name, node), what, f"{expected}; or no ORDER BY, which has no effect here")
    return _Parser(topology, table, {}).query(statement)


def check_query(topology: Topology, table: Table) -> list[str] | None:
    """Check a query as far as possible without the tables' schemas. Return the names of its result columns.

    `tailorbird validate` calls it. Returns None if a `*` leaves the names open. Raises TopologyError for an
    unsupported query, a table that is not captured, or a row_key that the result does not contain."""
    items = items_of(parse_query(topology, table))
    tables_of(topology, table)
    if any(item.star is not None for item in items):
        return None
    names = [item.name for item in items]
    for name in table.row_key:
        if name not in names:
            what, expected = f"unknown column {name}", "names of columns in the query's result"
            raise topology.error(f"tables.{table.name}.row_key", what, expected)
    return names


def tables_of(topology: Topology, table: Table, readers: tuple[str, ...] = ()) -> frozenset[TableId]:
    """Return the captured tables that a query reads, directly or through other joined tables of the topology.

    `readers` are the joined tables on the way from the first query to this one. Raises TopologyError if a table
    reads itself."""
    found: set[TableId] = set()
    for select in selects_of(parse_query(topology, table)):
        for relation in select.relations.values():
            if relation.table_id is not None:
                found.add(relation.table_id)
            elif relation.view is not None:
                if relation.view in (*readers, table.name):
                    way = " → ".join((*readers, table.name, relation.view))
                    refuse(topology, relation.place, f"{relation.view} reads itself: {way}", "tables without a circle")
                found |= tables_of(topology, topology.tables[relation.view], (*readers, table.name))
    return frozenset(found)


class _Parser:
    """Parses one query. Each subquery has a parser of its own. `named` are the queries of the WITH clause.

    `nameless`: the result columns need no names, because another query's names are used (later branches of a UNION)."""

    def __init__(
        self, topology: Topology, table: Table, named: Mapping[str, exp.Expr], *, nameless: bool = False
    ) -> None:
        self.topology, self.table, self.named, self.nameless = topology, table, dict(named), nameless
        self.relations: dict[str, Relation] = {}

    def refuse(self, node: exp.Expr | None, what: str, expected: str) -> NoReturn:
        start = Place(table=self.table.name, line=0, column=1)
        refuse(self.topology, start if node is None else self.place(node), what, expected)

    def place(self, node: exp.Expr) -> Place:
        return place_of(self.table.name, node)

    def query(self, node: exp.Expr) -> Query:
        """Convert a parsed SQL statement or subquery (of sqlglot) to the supported shape."""
        return numbered(self.read(node))

    def read(self, node: exp.Expr) -> Query:
        """Convert a subquery in FROM. The enclosing query may still limit its row numbers, if it has any."""
        if isinstance(node, exp.Subquery):
            self._refuse_clauses(node, ("this", "alias"))
            return self.read(node.this)
        if (named := node.args.get("with_")) is not None:
            for one in named.expressions:
                if named.args.get("recursive"):
                    self.refuse(one, "WITH RECURSIVE is not supported", "queries that do not read themselves")
                self.named[one.alias] = one.this
        if isinstance(node, exp.Union):
            return self._union(node)
        if isinstance(node, exp.SetOperation):
            every = "" if node.args.get("distinct") else " ALL"
            expected = "DISTINCT sets of as many named columns, without *; equal rows have one row_key, so count them"
            self.refuse(node.expression, f"{node.key.upper()}{every} is not supported", expected)
        if not isinstance(node, exp.Select):
            self.refuse(node, f"{node.key.upper()}", "a SELECT: " + FORM)
        return self._select(node)

    def _union(self, node: exp.Union) -> Union:
        distinct = bool(node.args.get("distinct"))
        self._refuse_clauses(node, ("this", "expression", "distinct", "with_"))
        branches: list[Select] = []
        for side in (node.this, node.expression):
            nameless = self.nameless or side is node.expression
            found = _Parser(self.topology, self.table, self.named, nameless=nameless).query(side)
            if isinstance(found, Select):
                branches.append(found)
                continue
            if found.distinct and not distinct:
                self.refuse(side, "UNION within UNION ALL", "the UNION as a table of its own under `tables:`")
            branches += found.branches
        return Union(table=self.table.name, branches=tuple(branches), distinct=distinct, place=self.place(node))

    def _select(self, select: exp.Select) -> Select:
        if (fault := left_distinct_on(select)) is not None:
            self.refuse(*fault)
        self._refuse_clauses(select, KEPT)
        if (source := select.args.get("from_")) is None:
            self.refuse(select, "no FROM", FORM)
        first = self._relation(source.this)
        first, joins = self._joins(first, select.args.get("joins") or [])
        try:
            select, scalars = without_subqueries(select, frozenset(self.relations))
        except Unsupported as error:
            self.refuse(error.node, error.what, error.expected)
        joins += tuple(self._semijoin(one, one.at) for one in scalars)
        joins, where = self._where(joins, select.args.get("where"))
        if unconnected(joins, where) is not None:
            where = factored(where)
        first, joins, where = self._limited(first, joins, where)
        self._check_joined(first, joins, where)
        items = tuple(self._item(expression, i) for i, expression in enumerate(select.expressions))
        ranking, qualify = self._ranking(select, items)
        windowed = ranking is None and any(map(windows_in, (*select.expressions, *qualify)))
        if ranking is not None and ranking.at < len(items):
            items = tuple(replace(one, expression=None) if i == ranking.at else one for i, one in enumerate(items))
        seen: set[str] = set()
        for item in items:
            if item.name in seen:
                refuse(self.topology, item.place, f"column {item.name} twice", "AS with another name")
            if item.name:
                seen.add(item.name)
        group, having = self._group(select.args.get("group")), select.args.get("having")
        conditions = conjuncts(None if having is None else having.this)
        for condition in conditions:
            self._check(condition, aggregates=True)
        expressions = (*(item.expression for item in items), *conditions, *qualify, *ranked_by(ranking))
        grouped = bool(group or conditions) or any(one is not None and any(aggregates_in(one)) for one in expressions)
        if grouped and (star := next((item for item in items if item.star is not None), None)):
            refuse(self.topology, star.place, "* of groups", "the columns of GROUP BY, and aggregates AS a name")
        return Select(
            table=self.table.name,
            first=first,
            joins=joins,
            where=where,
            items=items,
            place=self.place(select),
            group=group,
            grouped=grouped,
            having=conditions,
            distinct=select.args.get("distinct") is not None,
            ranking=ranking,
            windowed=windowed,
            qualify=qualify,
            relations=self.relations,
        )

    def _ranking(self, select: exp.Select, items: tuple[Item, ...]) -> tuple[Ranking | None, tuple[exp.Expr, ...]]:
        try:
            ranking, qualify = ranking_in(select, [item.name for item in items], self.place)
        except Unsupported as error:
            self.refuse(error.node, error.what, error.expected)
        for node in (*ranked_by(ranking), *qualify):
            self._check(node, aggregates=True)
        return ranking, qualify

    def _limited(
        self, first: Relation, joins: tuple[Join, ...], where: tuple[exp.Expr, ...]
    ) -> tuple[Relation, tuple[Join, ...], tuple[exp.Expr, ...]]:
        """Apply `n <= 3` conditions to subqueries with ROW_NUMBER(). Drop conditions that are then redundant."""
        try:
            first, joins, where = limited(first, joins, where)
        except Unsupported as error:
            self.refuse(error.node, error.what, error.expected)
        self.relations |= {one.alias: one for one in (first, *(join.relation for join in joins))}
        return first, joins, where

    def _refuse_clauses(self, node: exp.Expr, kept: tuple[str, ...]) -> None:
        ordered = node.args.get("order") and node.args.get("limit") and not node.args.get("offset")
        for key, value in node.args.items():
            if value and key not in kept:
                name, expected = (LEFT_LIMITS if ordered else CLAUSES).get(key, (key.strip("_").upper(), FORM))
                self.refuse(value[0] if isinstance(value, list) else value, f"{name} is not supported", expected)

    def _group(self, node: exp.Expr | None) -> tuple[exp.Expr, ...]:
        if node is None:
            return ()
        for key in [key for key in ("all", "totals") if node.args.get(key)]:
            self.refuse(node, f"GROUP BY {key.upper()} is not supported", "GROUP BY a, b: each column by its name")
        for expression in [one for key in node.args if key not in ("all", "totals") for one in node.args[key] or ()]:
            if isinstance(expression, exp.Rollup | exp.Cube | exp.GroupingSets):
                what = f"{expression.key.upper()} here is not supported"
                self.refuse(expression, what, "it in FROM (SELECT …) name, without ORDER BY and window functions")
            self._check(expression)
        return tuple(node.expressions)

    # -- tables

    def _relation(self, node: exp.Expr) -> Relation:
        query: Query | None = None
        view, table_id = None, None
        alias = node.alias or node.name or f"query{len(self.relations)}"
        if isinstance(node, exp.Subquery) and not node.args.get("pivots"):
            query = _Parser(self.topology, self.table, self.named).read(node.this)
        elif not isinstance(node, exp.Table):
            what = "this PIVOT" if node.args.get("pivots") else f"a {node.key} where a table is expected"
            self.refuse(node, what, "source.table, or (SELECT …) name; PIVOT (sum(x) FOR y IN ('a')) of its columns")
        else:
            if extra := [k for k, value in node.args.items() if value and k not in ("this", "db", "catalog", "alias")]:
                self.refuse(node, f"{extra[0].upper()} on a table", "source.table alias")
            query, view, table_id = self._named(node)
        if alias in self.relations:
            self.refuse(node, f"{alias} names two tables", "an alias of its own for each table")
        place = self.place(node)
        relation = Relation(alias=alias, table_id=table_id, view=view, place=place, query=query)
        self.relations[alias] = relation
        return relation

    def _named(self, node: exp.Table) -> tuple[Query | None, str | None, TableId | None]:
        """Resolve a name after FROM or JOIN: to a WITH query, another joined table, or a captured table."""
        parts = tuple(part.name for part in node.parts)
        if len(parts) == 1 and parts[0] in self.named:
            others = {name: query for name, query in self.named.items() if name != parts[0]}
            return _Parser(self.topology, self.table, others).read(self.named[parts[0]]), None, None
        if len(parts) == 1 and parts[0] in self.topology.tables:
            return None, parts[0], None
        table_id = self.topology.table_id(parts)
        if table_id is None:
            what = f"unknown table {'.'.join(parts)}"
            self.refuse(node, what, "one of " + ", ".join(self._known_tables()))
        return None, None, table_id

    def _known_tables(self) -> list[str]:
        known = list(self.named)
        for source in self.topology.sources.values():
            for table in declared_tables(source):
                known.append(f"{source.name}.{table.table}" if table.database == source.database else str(table))
        return known + [name for name in self.topology.tables if name != self.table.name]

    # -- joins and conditions

    def _joins(self, first: Relation, nodes: list[exp.Join]) -> tuple[Relation, tuple[Join, ...]]:
        joins: list[Join] = []
        for node in nodes:
            join = self._join(node)
            if str(node.args.get("side")).upper() != "RIGHT":
                joins.append(join)
                continue
            if joins:
                what = "RIGHT JOIN after another join"
                form = f"a table's name before each column; or FROM {join.relation.alias} LEFT JOIN (SELECT …) name"
                self.refuse(node, what, form)
            joins.append(replace(join, relation=first))
            first = join.relation
        return first, tuple(joins)

    def _join(self, join: exp.Join) -> Join:
        words = [str(join.args[key]).upper() for key in ("method", "side", "kind") if join.args.get(key)]
        natural = words[:1] == ["NATURAL"]
        kind = " ".join(words[natural:])
        if kind not in KINDS:
            form = next((form for word, form in NOT_YET.items() if word in words), "JOIN … ON, or LEFT JOIN … ON")
            expected = form.format(table=join.this.sql("spark"), alias=join.this.alias_or_name)
            self.refuse(join, f"{kind} JOIN is not supported yet", expected)
        relation = self._relation(join.this)
        using = tuple(one.name for one in join.args.get("using") or ())
        condition: exp.Expr | None = join.args.get("on")
        condition = None if condition == exp.true() else condition  # sqlglot reads a missing ON as TRUE
        outer = kind.startswith(("LEFT", "RIGHT", "FULL"))
        if condition is None and outer and not (using or natural):
            self.refuse(join, "a join without ON", f"ON {relation.alias}.id = a.{relation.alias}_id")
        on = conjuncts(condition)
        for part in on:
            self._check(part)
        place = self.place(condition if condition is not None else join)
        full = kind.startswith("FULL")
        return Join(
            relation=relation, inner=not outer, on=on, place=place, full=full, cross=kind == "CROSS", using=using,
            natural=natural,
        )  # fmt: skip

    def _where(self, joins: tuple[Join, ...], where: exp.Expr | None) -> tuple[tuple[Join, ...], tuple[exp.Expr, ...]]:
        """Split WHERE into conditions. Conditions with a subquery (EXISTS, IN) become joins."""
        conditions: list[exp.Expr] = []
        more = list(joins)
        for condition in conjuncts(None if where is None else where.this):
            try:
                semijoin = semijoin_of(condition, frozenset(self.relations), f"_semi{len(more)}")
            except Unsupported as error:
                self.refuse(error.node, error.what, error.expected)
            if semijoin is None:
                self._check(condition)
                conditions.append(condition)
                continue
            more.append(self._semijoin(semijoin, condition))
            conditions += semijoin.absent
        return tuple(more), tuple(conditions)

    def _semijoin(self, semijoin: Semijoin | ScalarJoin, at: exp.Expr) -> Join:
        place, absent = self.place(at), isinstance(semijoin, ScalarJoin) or bool(semijoin.absent)
        query = _Parser(self.topology, self.table, self.named).query(semijoin.query)
        relation = Relation(alias=semijoin.alias, table_id=None, view=None, place=place, query=query)
        self.relations[semijoin.alias] = relation
        for part in semijoin.on:
            self._check(part)
        if_null, single = (semijoin.if_null, semijoin.single) if isinstance(semijoin, ScalarJoin) else ((), False)
        return Join(relation=relation, inner=not absent, on=semijoin.on, place=place, if_null=if_null, single=single)

    def _check_joined(self, first: Relation, joins: tuple[Join, ...], where: tuple[exp.Expr, ...]) -> None:
        """Check that each joined table has an equality with another table. Keys are checked later, with the schemas."""
        if (join := unconnected(joins, where)) is not None:
            alias = join.relation.alias
            form = f"ON {alias}.id = {first.alias}.{alias}_id; or CROSS JOIN"
            refuse(self.topology, join.place, f"no equality joins {alias}", form)

    def _check(self, node: exp.Expr, *, aggregates: bool = False) -> None:
        """Raise an error for columns of an unknown table, and for anything unsupported in an expression."""
        try:
            check_shape(node, aggregates=aggregates)
        except Unsupported as error:
            self.refuse(error.node, error.what, error.expected)
        for column in node.find_all(exp.Column):
            if len(column.parts) > 2 or (column.table and column.table not in self.relations):
                known = ", ".join(alias for alias in self.relations if not alias.startswith("_"))
                self.refuse(column, f"unknown table {column.table} in {column.sql('spark')}", f"one of {known}")

    def _item(self, node: exp.Expr, number: int) -> Item:
        inner, place = node.unalias(), self.place(node)
        star = inner if isinstance(inner, exp.Star) else inner.this if isinstance(inner, exp.Column) else None
        if isinstance(star, exp.Star):
            alias = inner.table if isinstance(inner, exp.Column) else ""
            if any(star.args.values()):
                self.refuse(node, f"{inner.sql('spark')} is not supported yet", f"{alias or 't'}.* or single columns")
            if alias and alias not in self.relations:
                self.refuse(node, f"unknown table {alias} in {alias}.*", "one of " + ", ".join(self.relations))
            return Item(expression=None, name="", star=alias, place=place)
        self._check(inner, aggregates=True)
        name = node.alias or (inner.name if isinstance(inner, exp.Column) else "")
        if self.nameless:
            name = f"column {number}"
        if not name:
            self.refuse(node, f"{inner.sql('spark')} without a name", f"{inner.sql('spark')} AS name")
        if name.startswith("_"):
            self.refuse(node, f"column {name}", "a name that does not begin with _ (those are reserved): AS another")
        return Item(expression=inner, name=name, star=None, place=place)
