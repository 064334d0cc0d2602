"""Stage 2 of the compilation of a query: flatten it (see `joins.select`).

A subquery in FROM, or a joined table of the topology that is read like a view, is merged into the outer query: its
tables become joins, its conditions are added, and its columns are replaced by their expressions. `SELECT q.n FROM
(SELECT upper(name) AS n FROM t WHERE id > 5) q` becomes `SELECT upper("q/t".name) AS n FROM t "q/t" WHERE "q/t".id >
5`.

If the subquery is on the nullable side of a LEFT JOIN, its expressions become `CASE WHEN <row exists> THEN … END`. A
subquery stays separate, and is read like a table, if merging would change the result: with groups, DISTINCT, UNION
or row numbers, and with conditions below a LEFT JOIN. `*` is expanded to columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NoReturn

from sqlglot import exp

from cdc.model.schema import TableId, TableSchema
from cdc.topology.topology import Topology
from joins.query.aggregates import aggregates_in
from joins.select.connected import meets_all
from joins.select.flat import Condition, Flat, FlatItem, FlatJoin, ReadQuery
from joins.select.names import Shared, same_name
from joins.select.parser import parse_query
from joins.select.rewrite.grouping_sets import ALIAS
from joins.select.rows import Shape
from joins.select.sql import Item, Join, Place, Query, Relation, Select, place_of, refuse


@dataclass(frozen=True, slots=True, kw_only=True)
class Reads:
    """The inputs of flattening: the topology, the schemas of the captured tables, and the function that binds a
    subquery."""

    topology: Topology
    schemas: Mapping[TableId, TableSchema]
    bind: Callable[[Query], ReadQuery]


def flatten(reads: Reads, select: Select, prefix: str = "") -> Flat:
    """Flatten a SELECT. `prefix` is put before the aliases of its tables; it is `alias/` for a subquery.

    Raises TopologyError for unknown or ambiguous columns."""
    return _Flattener(reads, select, prefix).run()


class _Flattener:
    def __init__(self, reads: Reads, select: Select, prefix: str) -> None:
        self.reads, self.select, self.prefix = reads, select, prefix
        self.flat = Flat()
        # the expression of each column name, by alias of the query
        self.scope: dict[str, dict[str, exp.Expr]] = {}
        self.shared = Shared()
        self.unread: set[str] = set()  # aliases of subqueries for a partition of NULL that does not exist
        self.former: dict[str, dict[str, exp.Expr]] = {}  # the same for columns that their table has dropped

    def refuse(self, place: Place, what: str, expected: str) -> NoReturn:
        refuse(self.reads.topology, place, what, expected)

    def run(self) -> Flat:
        select = self.select
        self._enter(select.first, None)
        for join in select.joins:
            self._enter(join.relation, join)
        self.flat.where += [self._condition(condition) for condition in select.where]
        self._items(select)
        self.flat.group += [self._grouping(node, select.items) for node in select.group]
        self.flat.having += [self._condition(self._expand_names(node, select.items)) for node in select.having]
        self.flat.qualify += [self._condition(self._expand_names(node, select.items)) for node in select.qualify]
        self._numbered(select)
        self.flat.scope = self.scope
        return self.flat

    # -- tables

    def _enter(self, relation: Relation, join: Join | None) -> None:
        """Add a relation after FROM or JOIN: a captured table, a merged subquery, or a separate subquery."""
        if join is not None and any(self._never_null(column, join.place) for column in join.if_null):
            self.unread.add(relation.alias)
            return
        inside = Flat()
        if relation.table_id is not None:
            first = self._captured(relation, self.reads.schemas[relation.table_id])
        else:
            query = self._query(relation)
            merged = self._merged(relation, query, join)
            first = self._read(relation, query) if merged is None else merged.first
            inside = inside if merged is None else merged
        if join is None:
            self.flat.first = first
        else:
            on = (*self._using(relation, join), *(self._condition(condition, join.place) for condition in join.on))
            self.flat.joins.append(
                FlatJoin(
                    alias=first, inner=join.inner, on=on, full=join.full, cross=meets_all(join), single=join.single
                )
            )
        self.flat.joins += inside.joins
        self.flat.where += inside.where

    def _using(self, relation: Relation, join: Join) -> list[Condition]:
        """Return the equalities of USING or NATURAL, and record the columns that the tables then share."""
        own, names = self.scope[relation.alias], list(join.using)
        before = {alias: columns for alias, columns in self._visible().items() if alias != relation.alias}
        if join.natural:
            self._must_be_whole([*before, relation.alias], join.place)
            names = [name for name in own if any(same_name(columns, name) for columns in before.values())]
            if not names:
                self.refuse(join.place, f"NATURAL JOIN of {relation.alias} without a common column", "ON, or USING")
        found: list[Condition] = []
        for name in names:
            mine, owners = same_name(own, name), self.shared.owners(before, name)
            if mine is None or len(owners) != 1:
                where = " and ".join(alias for alias, _ in owners) or "no table before the join"
                what = f"{name}, by which {relation.alias} is joined, is in {where if mine else 'no column of it'}"
                self.refuse(join.place, what, f"ON {relation.alias}.{mine or name} = …")
            sides = self.shared.value(before, *owners[0]).copy(), own[mine].copy()
            equality = exp.EQ(this=sides[0].copy(), expression=sides[1].copy())
            found.append(Condition(expression=equality, place=join.place))
            self.shared.add(owners[0], (relation.alias, mine), sides, full=join.full)
        return found

    def _must_be_whole(self, aliases: list[str], place: Place) -> None:
        """Raise an error if a table has columns that are not captured: NATURAL would compare them, too."""
        for alias in aliases:
            schema = self.flat.shapes.get(self.prefix + alias)
            if isinstance(schema, TableSchema) and schema.left_out:
                what = f"NATURAL JOIN with {alias}, whose column {schema.left_out[0][0]} is not captured"
                self.refuse(place, what, "USING (…), the columns by name")

    def _never_null(self, column: exp.Column, place: Place) -> bool:
        """Return whether a column has a value in each result row: it is NOT NULL, and no join may lack its row."""
        found = self._column(column, place)
        if not isinstance(found, exp.Column) or any(join.full for join in self.flat.joins):
            return False
        known = self.flat.shapes[found.table].column(found.name)
        optional = {join.alias for join in self.flat.joins if not join.inner}
        return known is not None and not known.nullable and found.table not in optional

    def _captured(self, relation: Relation, schema: TableSchema) -> str:
        alias = self.prefix + relation.alias
        self.flat.relations[alias], self.flat.shapes[alias] = relation, schema
        self.scope[relation.alias] = {c.name: _column(alias, c.name) for c in schema.columns}
        self.former[relation.alias] = {column.name: _column(alias, column.name) for _, column in schema.former}
        return alias

    def _query(self, relation: Relation) -> Query:
        if relation.query is not None:
            return relation.query
        view = self.reads.topology.tables[relation.view or ""]
        return parse_query(self.reads.topology, view, self.reads.schemas)

    def _read(self, relation: Relation, query: Query) -> str:
        """Add a subquery that stays separate. Return its alias."""
        alias = self.prefix + relation.alias
        bound = self.reads.bind(query)
        self.flat.relations[alias], self.flat.shapes[alias] = relation, bound.rows
        self.flat.readings[alias] = bound
        self.scope[relation.alias] = {c.name: _column(alias, c.name) for c in bound.rows.columns if c.name[0] != "_"}
        return alias

    def _merged(self, relation: Relation, query: Query, join: Join | None) -> Flat | None:
        """Merge a subquery into this query and return its flattened form. None if it must stay separate."""
        if (
            not isinstance(query, Select)
            or query.grouped
            or query.distinct
            or query.ranking
            or query.windowed
            or any(one.full for one in query.joins)
        ):
            return None
        if any(one.full for one in self.select.joins):  # with a FULL JOIN, other tables may be missing as a whole
            return None
        inside = flatten(self.reads, query, f"{self.prefix}{relation.alias}/")
        computed = {item.name: item.expression for item in inside.items}
        if join is not None and not join.inner:
            if inside.where or any(one.inner for one in inside.joins):
                return None
            key = _never_null(inside.shapes[inside.first])
            if key is None and not all(isinstance(node, exp.Column) for node in computed.values()):
                return None
            computed = {name: _if_row_exists(inside.first, key, node) for name, node in computed.items()}
        self.flat.relations |= inside.relations
        self.flat.shapes |= inside.shapes
        self.flat.readings |= inside.readings
        self.scope[relation.alias] = computed
        return inside

    # -- columns and conditions

    def _items(self, select: Select) -> None:
        taken: set[str] = set()
        for item in select.items:
            if item.expression is None and item.star is None:
                continue  # the number of the row
            if item.expression is not None:
                found = [(item.name, self._bound(item.expression, item.place))]
            else:
                found = [*(self.scope[item.star].items() if item.star else self.shared.star(self._visible()))]
            for name, expression in found:
                if name in taken or name.startswith("_"):
                    what = f"column {name} twice" if name in taken else f"column {name}, a reserved name"
                    self.refuse(item.place, what, "single columns, each AS a name of its own")
                taken.add(name)
                self.flat.items.append(FlatItem(name=name, expression=expression, place=item.place))

    def _numbered(self, select: Select) -> None:
        """Record the PARTITION BY and ORDER BY items of ROW_NUMBER(). Expressions that are no result columns are
        added last."""
        if select.ranking is None:
            return
        names = {item.expression.sql(): item.name for item in self.flat.items}
        ranking = select.ranking

        def named(node: exp.Expr) -> str:
            bound = self._bound(node, place_of(select.table, node))
            name = names.setdefault(bound.sql(), f"_o{len(names)}")
            if name[0] == "_" and all(item.name != name for item in self.flat.items):
                self.flat.items.append(FlatItem(name=name, expression=bound, place=place_of(select.table, node)))
            return name

        self.flat.partition = list(dict.fromkeys(named(node) for node in ranking.partition))
        self.flat.order = [(named(node), descending) for node, descending in ranking.order]

    def _grouping(self, node: exp.Expr, items: tuple[Item, ...]) -> Condition:
        """Return the expression of a GROUP BY entry, which may be an expression, a column name or a column number."""
        place = place_of(self.select.table, node)
        if isinstance(node, exp.Literal) and not node.is_string:
            number = int(node.name) if node.name.isdigit() else 0
            if not 0 < number <= len(items):
                self.refuse(place, f"GROUP BY {node.name}", f"a column's number, 1 to {len(items)}, or its name")
            node = items[number - 1].expression or node
        elif isinstance(node, exp.Column) and not self._names_a_column(node):
            node = self._expand_names(node, items)
        if (alias := node.meta.get(ALIAS)) and self._names_a_column(exp.column(alias)):
            expected = f"GROUP BY … {node.sql()}, or another name than {alias} for the result column"
            where = "in ROLLUP, CUBE or GROUPING SETS, or in groups of a FULL JOIN"
            self.refuse(place, f"{alias}, a column of a table and of the result, {where}", expected)
        return Condition(expression=self._bound(node, place), place=place)

    def _names_a_column(self, node: exp.Column) -> bool:
        return bool(node.table) or bool(self.shared.owners(self._visible(), node.name))

    def _visible(self) -> dict[str, dict[str, exp.Expr]]:
        """Return the columns of the tables that the query names. Others are subqueries in conditions."""
        return {alias: columns for alias, columns in self.scope.items() if alias[0] != "_"}

    def _expand_names(self, node: exp.Expr, items: tuple[Item, ...]) -> exp.Expr:
        """Replace names of result columns by their expressions: HAVING and GROUP BY may use `AS` names.

        Within an aggregate function or a window, a name means the tables' column, if there is one, as in Spark."""
        named = {item.name: item.expression for item in items if item.expression is not None}
        copy = exp.Paren(this=node.copy())
        for column in list(copy.find_all(exp.Column)):
            if column.table or (name := same_name(named, column.name)) is None:
                continue
            if column.find_ancestor(exp.AggFunc, exp.Window) is not None:
                if self._names_a_column(column):
                    continue
                if column.find_ancestor(exp.AggFunc) is not None and any(aggregates_in(named[name])):
                    what = f"{column.name}, an aggregate, within another one"
                    self.refuse(place_of(self.select.table, node), what, f"HAVING {column.name} > …, the plain name")
            value = named[name].copy()
            column.replace(value if column is copy.this else exp.Paren(this=value))
        inner: exp.Expr = copy.this
        return inner

    def _condition(self, node: exp.Expr, near: Place | None = None) -> Condition:
        place = place_of(self.select.table, node)
        if near is not None and place.line == 0:
            place = near
        return Condition(expression=self._bound(node, place), place=place)

    def _bound(self, node: exp.Expr, place: Place) -> exp.Expr:
        """Return the expression with every column replaced by what it stands for: a table's column, or an
        expression."""
        if isinstance(node, exp.Column):
            return self._column(node, place).copy()
        bound = _without(node, self.unread) if self.unread else node.copy()
        if isinstance(bound, exp.Column):
            return self._column(bound, place).copy()
        for column in list(bound.find_all(exp.Column)):
            found = self._column(column, place).copy()
            column.replace(found if isinstance(found, exp.Column) else exp.Paren(this=found))
        return bound

    def _column(self, column: exp.Column, place: Place) -> exp.Expr:
        name, text = column.name, column.sql("spark")
        if column.table:
            if column.table not in self.scope:  # joined only later in the query
                self.refuse(place, f"unknown table {column.table} in {text}", "a table named before")
            columns = self.scope[column.table]
            if name in (former := self.former.get(column.table, {})):
                return former[name]
            if (own := same_name(columns, name)) is None:
                self._refuse_left_out([column.table], name, place)
                self.refuse(place, f"unknown column {text}", "one of " + ", ".join(columns))
            return columns[own]
        scope = self._visible()
        owners = self.shared.owners(scope, name)
        if not owners:
            scope = self.former
            owners = self.shared.owners(scope, name)
        if not owners:
            self._refuse_left_out(list(self.scope), name, place)
            known = dict.fromkeys(name for columns in self.scope.values() for name in columns)
            self.refuse(place, f"unknown column {name}", "one of " + ", ".join(known))
        if len(owners) > 1:
            what = f"column {name} is in {' and '.join(alias for alias, _ in owners)}"
            self.refuse(place, what, " or ".join(f"{alias}.{own}" for alias, own in owners))
        return self.shared.value(scope, *owners[0])

    def _refuse_left_out(self, aliases: list[str], name: str, place: Place) -> None:
        """Raise an error if the column exists at the source but is not captured because of its type. `*` omits such
        columns."""
        for alias in aliases:
            schema = self.flat.shapes.get(self.prefix + alias)
            kind = dict(schema.left_out).get(name) if isinstance(schema, TableSchema) else None
            if isinstance(schema, TableSchema) and kind is not None:
                what = f"column {schema.table_id}.{name} has type {kind}, which is not captured"
                self.refuse(place, what, "a query without it")


def _without(node: exp.Expr, aliases: set[str]) -> exp.Expr:
    """Return an expression without the branches of CASE that read these tables (`joins.select.rewrite.partitions`)."""
    copy = exp.Paren(this=node.copy())
    for case in reversed(list(copy.find_all(exp.Case))):  # inner ones first
        ifs = case.args["ifs"]
        kept = [one for one in ifs if not any(c.table in aliases for c in one.args["true"].find_all(exp.Column))]
        if not kept:
            case.replace(case.args["default"])
        elif len(kept) < len(ifs):
            case.set("ifs", kept)
    inner: exp.Expr = copy.this
    return inner


def _column(alias: str, name: str) -> exp.Expr:
    return exp.column(name, table=alias, quoted=True)


def _never_null(shape: Shape) -> str | None:
    """Return a column that is NULL only where there is no row. None if no key column is like that, as in groups."""
    if isinstance(shape, TableSchema):
        return shape.primary_key[0] if shape.primary_key else ""  # "": refused where it is joined
    nullable = {column.name for column in shape.columns if column.nullable}
    return next((name for name in shape.primary_key if name not in nullable), None)


def _if_row_exists(first: str, key: str | None, node: exp.Expr) -> exp.Expr:
    """Return `node` as NULL where a merged subquery after LEFT JOIN has no row.

    The subquery has a row exactly if `key`, a column of its first table, is not NULL: it has no inner joins."""
    if isinstance(node, exp.Column) or not key:
        return node
    absent = exp.Is(this=_column(first, key), expression=exp.Null())
    return exp.Case(ifs=[exp.If(this=exp.Not(this=absent), true=node.copy())])
