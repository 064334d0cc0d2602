"""A query and the schemas → the same query over captured tables only, every column with its table, no `*` left.

A table of the topology that a query reads is replaced by its own query: its tables take its place among the joins, its
conditions join the others, its columns become what they are computed from; below a LEFT JOIN they are computed only
where its row is there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NoReturn

from sqlglot import exp

from cdc.topology.topology import Table, Topology
from cdc.words.schema import TableId, TableSchema
from joins.query.sql import Join, Place, Relation, Select, parse_query, place_of, refuse


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """One condition over flat columns, and where it was written."""

    expression: exp.Expr
    place: Place


@dataclass(frozen=True, slots=True, kw_only=True)
class FlatJoin:
    """A table that is joined; `alias` is a key of `Flat.relations`."""

    alias: str
    inner: bool
    on: tuple[Condition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FlatItem:
    """One column of the result."""

    name: str
    expression: exp.Expr
    place: Place


@dataclass(slots=True, kw_only=True)
class Flat:
    """The query over captured tables; `relations` by alias (`outer/inner` where a table of the topology was read)."""

    relations: dict[str, Relation] = field(default_factory=dict)
    first: str = ""
    joins: list[FlatJoin] = field(default_factory=list)
    where: list[Condition] = field(default_factory=list)
    items: list[FlatItem] = field(default_factory=list)


def flatten(topology: Topology, table: Table, schemas: Mapping[TableId, TableSchema], prefix: str = "") -> Flat:
    """The flat query; TopologyError for unknown or ambiguous columns."""
    return _Flattener(topology, table, schemas, prefix).run()


class _Flattener:
    def __init__(self, topology: Topology, table: Table, schemas: Mapping[TableId, TableSchema], prefix: str) -> None:
        self.topology, self.table, self.schemas, self.prefix = topology, table, schemas, prefix
        self.flat = Flat()
        # what each name of a column stands for, by alias of the query
        self.scope: dict[str, dict[str, exp.Expr]] = {}
        self.former: dict[str, dict[str, exp.Expr]] = {}  # the same of columns that their table has no more

    def refuse(self, place: Place, what: str, expected: str) -> NoReturn:
        refuse(self.topology, place, what, expected)

    def run(self) -> Flat:
        select = parse_query(self.topology, self.table)
        self._enter(select.first, None)
        for join in select.joins:
            self._enter(join.relation, join)
        self.flat.where += [self._condition(condition) for condition in select.where]
        self._items(select)
        return self.flat

    def _enter(self, relation: Relation, join: Join | None) -> None:
        """Add a table of the query, or the tables of a view in its place."""
        if relation.table_id is not None:
            alias = self.prefix + relation.alias
            self.flat.relations[alias] = relation
            columns = self.schemas[relation.table_id].columns
            self.scope[relation.alias] = {c.name: exp.column(c.name, table=alias, quoted=True) for c in columns}
            gone = [column.name for _, column in self.schemas[relation.table_id].former]
            self.former[relation.alias] = {name: exp.column(name, table=alias, quoted=True) for name in gone}
            first = alias
            inside = Flat()
        else:
            view = self.topology.tables[relation.view or ""]
            inside = flatten(self.topology, view, self.schemas, f"{self.prefix}{relation.alias}/")
            self.flat.relations |= inside.relations
            computed = {item.name: item.expression for item in inside.items}
            if join is not None and not join.inner:
                computed = {name: self._if_there(inside, node) for name, node in computed.items()}
            self.scope[relation.alias] = computed
            first = inside.first
            if join is not None and not join.inner and (inside.where or any(j.inner for j in inside.joins)):
                what = f"LEFT JOIN of {relation.view}, which has a WHERE or an inner JOIN"
                self.refuse(relation.place, what, f"JOIN {relation.view}, or its own tables")
        if join is None:
            self.flat.first = first
        else:
            on = tuple(self._condition(condition, join.place) for condition in join.on)
            self.flat.joins.append(FlatJoin(alias=first, inner=join.inner, on=on))
        self.flat.joins += inside.joins
        self.flat.where += inside.where

    def _if_there(self, inside: Flat, node: exp.Expr) -> exp.Expr:
        """A column of a view on the side of a join that may be missing: where the view has no row, all are NULL.

        The row is there where its first table's is, since such a view has no inner joins.
        """
        table_id = inside.relations[inside.first].table_id
        assert table_id is not None  # flat queries read captured tables only
        key = self.schemas[table_id].primary_key
        if isinstance(node, exp.Column) or not key:  # a table without a key is refused where it is joined
            return node
        absent = exp.Is(this=exp.column(key[0], table=inside.first, quoted=True), expression=exp.Null())
        return exp.Case(ifs=[exp.If(this=exp.Not(this=absent), true=node.copy())])

    def _items(self, select: Select) -> None:
        taken: set[str] = set()
        for item in select.items:
            if item.expression is not None:
                found = [(item.name, self._bound(item.expression, item.place))]
            else:
                aliases = [item.star] if item.star else list(self.scope)
                found = [(name, node) for alias in aliases for name, node in self.scope[alias].items()]
            for name, expression in found:
                if name in taken or name.startswith("_"):
                    what = f"column {name} twice" if name in taken else f"column {name}, a reserved name"
                    self.refuse(item.place, what, "single columns, each AS a name of its own")
                taken.add(name)
                self.flat.items.append(FlatItem(name=name, expression=expression, place=item.place))

    def _condition(self, node: exp.Expr, near: Place | None = None) -> Condition:
        place = place_of(self.table.name, node)
        if near is not None and place.line == 0:
            place = near
        return Condition(expression=self._bound(node, place), place=place)

    def _bound(self, node: exp.Expr, place: Place) -> exp.Expr:
        """The expression over flat columns."""
        if isinstance(node, exp.Column):
            return self._column(node, place).copy()
        bound = node.copy()
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
            if name not in columns:
                self._refuse_left_out([column.table], name, place)
                self.refuse(place, f"unknown column {text}", "one of " + ", ".join(columns))
            return columns[name]
        scope = self.scope
        owners = [alias for alias, columns in scope.items() if name in columns]
        if not owners:
            scope = self.former
            owners = [alias for alias, columns in scope.items() if name in columns]
        if not owners:
            self._refuse_left_out(list(self.scope), name, place)
            known = dict.fromkeys(name for columns in self.scope.values() for name in columns)
            self.refuse(place, f"unknown column {name}", "one of " + ", ".join(known))
        if len(owners) > 1:
            what = f"column {name} is in {' and '.join(owners)}"
            self.refuse(place, what, " or ".join(f"{owner}.{name}" for owner in owners))
        return scope[owners[0]][name]

    def _refuse_left_out(self, aliases: list[str], name: str, place: Place) -> None:
        """A column that its table has but nobody captures: `*` goes without it, who names it is told why."""
        for alias in aliases:
            relation = self.flat.relations.get(self.prefix + alias)
            schema = self.schemas[relation.table_id] if relation and relation.table_id else None
            kind = dict(schema.left_out).get(name) if schema else None
            if schema and kind is not None:
                what = f"column {schema.table_id}.{name} has type {kind}, which is not captured"
                self.refuse(place, what, "a query without it")
