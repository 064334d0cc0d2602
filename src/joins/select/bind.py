"""Stage 3 of the compilation of a query: bind it to the schemas (see `joins.select`).

Binding chooses the tree of tables, splits off groups, and determines the types of the columns.

A grouped query is split into two queries. `SELECT city, count(*) AS n FROM p GROUP BY city HAVING count(*) > 1`
becomes an inner query of single rows (`g0` = city; functions with arguments add `x0`, `x1`, …) and an outer query of
groups: `SELECT g0 AS city, a0 AS n WHERE a0 > 1`. The columns of the groups are their key (`g0`, …) and the values
of the aggregate functions (`a0`, …)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NoReturn

from sqlglot import exp

from cdc.model.schema import Column, TableId, TableSchema
from cdc.model.types import SPATIAL, LogicalType
from cdc.topology.topology import Topology
from joins.query.aggregates import Keeping, aggregates_in, read_by
from joins.query.finish import compiled, text_of_expression, value
from joins.query.typed import Typed, Unsupported
from joins.query.value_types import INTEGERS, NULL
from joins.select.bound import Bound, BoundGroup, BoundTree, BoundUnion
from joins.select.by_time import by_time
from joins.select.dependence import determined_keys
from joins.select.flat import Condition, Flat, FlatItem
from joins.select.flatten import Reads, flatten
from joins.select.nulls import typed_nulls
from joins.select.over.temporal import temporal
from joins.select.over.topn import Ties, first_rows, name_key, visible
from joins.select.over.windowed import windowed
from joins.select.pairing import paired
from joins.select.rows import QueryColumn, QueryRows, keys_of
from joins.select.sql import Place, Query, Relation, Select, Union, refuse
from joins.select.tree import Tree, build_trees

_LITERALS = (exp.Literal, exp.Boolean)
_NO_KEYS = (*_LITERALS, exp.DataTypeParam)  # within an expression


class Binder:
    """Binds the queries of one topology. Raises TopologyError for errors that only the schemas reveal.

    With `row_key`, groups are identified by as few columns of GROUP BY as determine the others (`dependence`), but by
    all those that the row key names. For `lookups` see `joins.select.pairing.paired`."""

    def __init__(
        self,
        topology: Topology,
        schemas: Mapping[TableId, TableSchema],
        row_key: tuple[str, ...] | None = None,
        *,
        lookups: bool = False,
    ) -> None:
        self.topology, self.row_key, self.lookups = topology, row_key, lookups
        self.reads = Reads(topology=topology, schemas=schemas, bind=self.query)
        self.ties: Ties = {}

    def refuse(self, place: Place, what: str, expected: str) -> NoReturn:
        refuse(self.topology, place, what, expected)

    def query(self, query: Query) -> BoundTree:
        """Bind a parsed query: flatten it, then choose its tree, groups and types."""
        return self._union(query) if isinstance(query, Union) else self._select(query)

    def _select(self, select: Select) -> BoundTree:
        flat = flatten(self.reads, select)
        if select.ranking is not None:
            return self._first_rows(flat, select)
        if select.windowed:
            tree = windowed(self, flat, select, lambda inner: self._rows_of(inner, select), _reading)
            return self._distinct(tree) if select.distinct else tree
        if select.grouped:
            tree = self._of_groups(flat, select)
            return self._distinct(tree) if select.distinct else tree
        if select.distinct:
            return self._read(self._group(flat, [(i.expression, i.place) for i in flat.items], [], select.place), flat)
        return self.tree(flat, select.place)

    def _first_rows(self, flat: Flat, select: Select) -> BoundTree:
        inner = self._rows_of(flat, select)
        inner = name_key(self.topology, inner, self.tree)
        top = first_rows(self.topology, flat, select, inner, self.ties)
        return self.tree(visible(_reading(top, select.place)), select.place)

    def _rows_of(self, flat: Flat, select: Select) -> BoundTree:
        """Return the bound query whose rows, single ones or groups, are ordered."""
        return self._of_groups(flat, select) if select.grouped else self.tree(flat, select.place)

    # -- trees

    def tree(self, flat: Flat, place: Place) -> BoundTree:
        """Bind a flat query that has no groups.

        Several tables may be able to be the root of the tree. The first root is used whose key is among the query's
        columns. A join by time, conditions on the time and a many-to-many join are first split off as queries of
        their own."""
        if (timed := by_time(self.topology, flat, place, self.tree)) is not None:
            return self.tree(timed, place)
        if (live := temporal(self.topology, flat, place, self.tree)) is not None:
            return self.tree(live, place)
        trees = build_trees(self.topology, flat)
        if not trees:
            return self.tree(paired(self.topology, flat, place, self.tree, lookups=self.lookups), place)
        keys = [self._keys(flat, tree) for tree in trees]
        at = next((i for i, found in enumerate(keys) if found), 0)
        columns = tuple(self._column(flat, trees[at], item) for item in flat.items)
        rows = QueryRows(columns=columns, primary_key=keys[at][0] if keys[at] else (), also=tuple(keys[at][1:]))
        return BoundTree(flat=flat, trees=trees, tree=trees[at], rows=rows, place=place)

    def _keys(self, flat: Flat, tree: Tree) -> list[tuple[str, ...]]:
        """Return the keys of the root table that are among the query's columns, as column names of the query."""
        keys = keys_of(flat.shapes[tree.root.alias])
        return [found for key in keys if key and (found := self._key(flat, tree, key))]

    def _key(self, flat: Flat, tree: Tree, key: tuple[str, ...]) -> tuple[str, ...]:
        found = []
        for column in key:
            for item in flat.items:
                node = item.expression
                if isinstance(node, exp.Column) and tree.canonical(node.table, node.name) == (tree.root.alias, column):
                    found.append(item.name)
                    break
            else:
                return ()
        return tuple(found)

    def _column(self, flat: Flat, tree: Tree, item: FlatItem) -> QueryColumn:
        node = item.expression
        if not isinstance(node, exp.Column):
            typed = self._typed(flat, node, item.place)
            if typed.type == NULL:
                self.refuse(
                    item.place, f"column {item.name} is NULL without a type", "CAST(NULL AS STRING), or a value"
                )
            return QueryColumn(
                name=item.name, type=typed.type, nullable=True, origin=item.text or text_of_expression(node)
            )
        column = flat.shapes[node.table].column(node.name)
        assert column is not None  # joins.select.flatten refuses unknown columns
        schema = flat.shapes[node.table]
        origin = column.origin if isinstance(column, QueryColumn) else f"{_table_id(schema)}.{node.name}"
        type_ = self.type_of(flat, node)
        nullable = column.nullable or tree.optional(node.table)
        nullable = nullable and not (_is_not_null(flat, node) or tree.met(node.table, node.name))
        return QueryColumn(name=item.name, type=type_, nullable=nullable, origin=origin, members=members_of(column))

    def type_of(self, flat: Flat, column: exp.Column) -> LogicalType:
        """Return the type of a column of a flat query. Raises TopologyError if the type is not supported."""
        found = flat.shapes[column.table].column(column.name)
        assert found is not None  # joins.select.flatten refuses unknown columns
        try:
            return found.type
        except ValueError as error:
            place = flat.relations[column.table].place
            self.refuse(place, f"{column.table}.{column.name}: {error}", "a column of another type")

    def _typed(self, flat: Flat, node: exp.Expr, place: Place) -> Typed:
        try:
            return compiled(node, lambda column: value(column, 0, self.type_of(flat, column)))
        except Unsupported as error:
            self.refuse(place, error.what.replace("`", ""), error.expected)

    # -- groups

    def _of_groups(self, flat: Flat, select: Select) -> BoundTree:
        keys = [(condition.expression, condition.place) for condition in flat.group]
        always = not keys
        if always:  # there is one group, whose key is its literals
            keys = [(item.expression, item.place) for item in flat.items if isinstance(item.expression, _LITERALS)]
            keys = keys or [(exp.Literal.number(1), select.place)]
        expressions = [(item.expression, item.place) for item in flat.items]
        expressions += [(condition.expression, condition.place) for condition in flat.having]
        calls = [(call, place) for node, place in expressions for call in aggregates_in(node)]
        spare = [] if self.row_key is None or always else self._determined(flat, keys, select.place)
        same = {node.sql(): exp.Max(this=node.copy()) for node, _ in spare}
        keys = [(node, at) for node, at in keys if node.sql() not in same]
        calls += [(same[node.sql()], at) for node, at in spare]
        group = self._group(flat, keys, calls, select.place, always=always)
        group.named = {**group.named, **{text: group.named[call.sql()] for text, call in same.items()}}
        return self._read(group, flat)

    def _determined(self, flat: Flat, keys: list[tuple[exp.Expr, Place]], place: Place) -> list[tuple[exp.Expr, Place]]:
        """Return the expressions of GROUP BY that the others determine."""
        keys = list({node.sql(): (node, at) for node, at in keys}.values())
        items = [FlatItem(name=f"g{i}", expression=node, place=at) for i, (node, at) in enumerate(keys)]
        named = {item.expression.sql() for item in flat.items if item.name in (self.row_key or ())}
        wanted = frozenset(i for i, (node, _) in enumerate(keys) if node.sql() in named)
        inner = self.tree(_with_items(flat, items), place)
        determined = determined_keys(inner, len(keys), wanted)
        # the greatest value of a group would be plain text, no list of the members of a SET
        return [keys[i] for i in determined if not inner.rows.columns[i].members]

    def _group(
        self,
        flat: Flat,
        keys: list[tuple[exp.Expr, Place]],
        calls: list[tuple[exp.Expr, Place]],
        place: Place,
        *,
        always: bool = False,
    ) -> BoundGroup:
        keys = list({node.sql(): (node, at) for node, at in keys}.values())
        items = [FlatItem(name=f"g{i}", expression=node, place=at) for i, (node, at) in enumerate(keys)]
        arguments: dict[str, int] = {}
        for call, at in calls:
            for node in self.arguments(flat, call, at):
                if node.sql() not in arguments:
                    items.append(FlatItem(name=f"x{len(arguments)}", expression=node, place=at))
                    arguments[node.sql()] = len(arguments)
        inner = self.tree(_with_items(flat, items), place)
        self._check_keys(inner, keys)
        named = {node.sql(): item.name for (node, _), item in zip(keys, items, strict=False)}
        keeping, columns = Keeping(), list(inner.rows.columns[: len(keys)])
        for call, at in calls:
            if call.sql() in named:
                continue
            numbers = [arguments[node.sql()] for node in self.arguments(flat, call, at)]
            try:
                result = keeping.add(call, [(n, inner.rows.columns[len(keys) + n].type) for n in numbers])
            except Unsupported as error:
                self.refuse(at, error.what.replace("`", ""), error.expected)
            name, counts = f"a{len(keeping.results) - 1}", result.function.startswith("count")
            named[call.sql()] = name
            columns.append(QueryColumn(name=name, type=result.type, nullable=not counts, origin=result.text))
        rows = QueryRows(columns=tuple(columns), primary_key=tuple(column.name for column in columns[: len(keys)]))
        values = tuple(_literal(node) for node, _ in keys) if always else None
        return BoundGroup(inner=inner, keys=len(keys), keeping=keeping, rows=rows, named=named, always=values)

    def arguments(self, flat: Flat, call: exp.Expr, place: Place) -> list[exp.Expr]:
        """Return the expressions over single rows that an aggregate function reads."""

        def type_of(node: exp.Expr) -> LogicalType:
            return self.type_of(flat, node) if isinstance(node, exp.Column) else self._typed(flat, node, place).type

        return read_by(call, type_of)

    def _check_keys(self, inner: BoundTree, keys: list[tuple[exp.Expr, Place]]) -> None:
        for (node, place), column in zip(keys, inner.rows.columns, strict=False):
            if column.type.kind in ("float32", "float64", "json", "list", *SPATIAL):
                what = f"GROUP BY {text_of_expression(node)}, a {column.type}"
                self.refuse(place, what, "values that compare exactly: CAST(… AS DECIMAL(18,6)), or AS STRING")

    def _read(self, group: BoundGroup, flat: Flat) -> BoundTree:
        """Bind the outer query of a grouped query: its SELECT items and HAVING, over the columns of the groups."""
        place = group.inner.place

        def over_groups(node: exp.Expr, at: Place, *, within: bool = False) -> exp.Expr:
            # a literal within an expression, such as the 2 of DECIMAL(10,2), is no key of the groups
            name = None if within and isinstance(node, _NO_KEYS) else group.named.get(node.sql())
            if name is not None:
                return exp.column(name, table="", quoted=True)
            if isinstance(node, exp.Column):
                expected = "a column of GROUP BY, or within an aggregate such as max(…)"
                self.refuse(at, f"{text_of_expression(node)} is neither grouped nor aggregated", expected)
            copy = node.copy()
            for child in list(copy.iter_expressions()):
                child.replace(over_groups(child, at, within=True))
            return copy

        items = [
            FlatItem(
                name=i.name,
                expression=over_groups(i.expression, i.place),
                place=i.place,
                text=text_of_expression(i.expression),
            )
            for i in flat.items
        ]
        having = [
            Condition(
                expression=over_groups(c.expression, c.place), place=c.place, text=text_of_expression(c.expression)
            )
            for c in flat.having
        ]
        above = _reading(group, place)
        above.where, above.items = having, items
        return self.tree(above, place)

    def _distinct(self, tree: BoundTree) -> BoundTree:
        """Return a query for the distinct rows of `tree`, by grouping them by all columns."""
        flat = _reading(tree, tree.place)
        keys = [(item.expression, item.place) for item in flat.items]
        return self._read(self._group(flat, keys, [], tree.place), flat)

    # -- unions

    def _union(self, union: Union) -> BoundTree:
        branches = [self._select(select) for select in typed_nulls(union.branches, self._select, self.refuse)]
        first = branches[0]
        columns = list(first.rows.columns)
        for branch in branches[1:]:
            if len(branch.rows.columns) != len(columns):
                what = f"{len(branch.rows.columns)} columns instead of {len(columns)}"
                self.refuse(branch.place, what, "as many as the first query of the UNION has")
            for i, (one, other) in enumerate(zip(columns, branch.rows.columns, strict=True)):
                wider = _union_type(one.type, other.type)
                if wider is None:
                    what = f"column {one.name} is {one.type} and here {other.type}"
                    self.refuse(branch.flat.items[i].place, what, f"CAST(… AS {one.type}), values of one type")
                nullable = one.nullable or other.nullable
                columns[i] = QueryColumn(
                    name=one.name, type=wider, nullable=nullable, origin=one.origin, members=one.members
                )
        tags, keys = self._tags(branches)
        rows = QueryRows(columns=tuple(columns), primary_key=keys[0] if keys else (), also=tuple(keys[1:]))
        bound = BoundUnion(branches=tuple(branches), rows=rows, tags=tags)
        tree = self.tree(_reading(bound, union.place), union.place)
        return self._distinct(tree) if union.distinct else tree

    def _tags(
        self, branches: list[BoundTree]
    ) -> tuple[tuple[tuple[str, ...], tuple[tuple[str | int | bool, ...], ...]] | None, list[tuple[str, ...]]]:
        """Return how the branches of a UNION ALL are distinguished, and the keys of the union.

        If every branch selects a different literal in one column, such as `'web' AS channel`, or other literals in
        several columns, the first result is these columns with the literals of each branch. A key is these columns
        and a common key of the branches. Otherwise the results are None and []."""
        names = branches[0].rows.places()
        literals: dict[str, tuple[str | int | bool, ...]] = {}
        for i, name in enumerate(names):
            nodes = [branch.flat.items[i].expression for branch in branches]
            if all(isinstance(node, _LITERALS) for node in nodes):
                literals[name] = tuple(_literal(node) for node in nodes)
        for tags in [*((name,) for name in literals), tuple(literals)]:
            values = tuple(zip(*(literals[name] for name in tags), strict=True))
            if len({*values}) == len(branches) and (keys := _common_keys([branch.rows for branch in branches])):
                return (tags, values), [(*tags, *(names[at] for at in places)) for places in keys]
        return None, []


def _common_keys(branches: Sequence[QueryRows]) -> list[tuple[int, ...]]:
    """Return the column indexes of each key that all branches of a union share."""
    found = [[tuple(rows.places().index(name) for name in key) for key in keys_of(rows)] for rows in branches]
    return [key for key in found[0] if key and all(key in other for other in found)]


def _reading(bound: Bound, place: Place) -> Flat:
    """Return a flat query that selects all columns of a bound query."""
    relation = Relation(alias="", table_id=None, view=None, place=place)
    items = [
        FlatItem(name=c.name, expression=exp.column(c.name, table="", quoted=True), place=place, text=c.origin)
        for c in bound.rows.columns
    ]
    return Flat(relations={"": relation}, shapes={"": bound.rows}, readings={"": bound}, items=items)


def _with_items(flat: Flat, items: list[FlatItem]) -> Flat:
    """Return the query of a SELECT before GROUP BY, with other columns."""
    return Flat(
        relations=flat.relations, shapes=flat.shapes, readings=flat.readings,
        first=flat.first, joins=flat.joins, where=flat.where, items=items,
    )  # fmt: skip


def _is_not_null(flat: Flat, column: exp.Column) -> bool:
    """Return whether WHERE contains `column IS NOT NULL`."""
    found = exp.Not(this=exp.Is(this=column, expression=exp.Null()))
    return any(condition.expression.unnest() == found for condition in flat.where)


def members_of(column: Column | QueryColumn) -> bool:
    """Return whether a column is a MySQL SET, whose text is a list of members."""
    if isinstance(column, QueryColumn):
        return column.members
    return column.column_type.lower().startswith("set(")


def _table_id(shape: object) -> str:
    assert isinstance(shape, TableSchema)  # columns of other queries have an origin of their own
    return str(shape.table_id)


def _literal(node: exp.Expr) -> str | int | bool:
    if isinstance(node, exp.Boolean):
        return bool(node.this)
    return node.name if node.is_string or not node.name.isdigit() else int(node.name)


def _union_type(one: LogicalType, other: LogicalType) -> LogicalType | None:
    """Return the common type of a column in two branches of a UNION. None if their values are written differently."""
    if one == other:
        return one
    if one.kind in INTEGERS and other.kind in INTEGERS:
        return max(one, other, key=lambda type_: list(INTEGERS).index(type_.kind))
    if {one.kind, other.kind} == {"datetime", "timestamp"}:
        return LogicalType(kind="datetime")
    return None
