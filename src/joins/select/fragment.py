"""Compile a bound tree to the nodes and expressions of a fragment (part of stage 4, see `joins.select`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NoReturn, Protocol

from sqlglot import exp

from cdc.model.schema import TableId, TableSchema
from cdc.model.types import LogicalType
from cdc.topology.topology import Topology
from joins.query.finish import all_of, compiled, condition_of, text_of_expression, value
from joins.query.nodes import Derived, Expression, LookupJoin, Node, PlanSource
from joins.query.plan import Finish, Output
from joins.query.typed import Resolve, Typed, Unsupported
from joins.query.value_types import NULL, spark_type
from joins.select.bind import members_of
from joins.select.bound import BoundInterval, BoundPair, BoundTree, BoundUnion
from joins.select.flat import Condition, FlatItem, ReadQuery
from joins.select.placed_conditions import PlacedConditions
from joins.select.rows import QueryColumn, keys_of
from joins.select.sql import Place, refuse
from joins.select.tree import Branch


class Planning(Protocol):
    """The parts of the planner that the compilation of a tree uses (implemented by `joins.select.compiler`)."""

    topology: Topology
    sources: Mapping[TableId, PlanSource]

    def number(self) -> int:
        """Return the next unused step number."""
        ...

    def read(
        self, bound: ReadQuery, target: int, names: Sequence[str], wanted: Sequence[str]
    ) -> tuple[tuple[int, ...], tuple[str, ...]]:
        """Plan a query whose rows another step reads. `target` is the number of that step.

        `names` are the columns that form the id of a row. If it is empty, the query's own key is used. Return the
        numbers of the added fragments, and the columns of their rows, which include all of `wanted`."""
        ...


class TreeCompiler:
    """Compiles a bound tree: first the tables and joins (`root`), then the expressions and WHERE (`finish`).

    `offsets` gives, by alias, the index of a table's first column in the flat list (see `joins.query.plan`)."""

    def __init__(self, planning: Planning, bound: BoundTree, placed: PlacedConditions) -> None:
        self.planning, self.bound, self.placed = planning, bound, placed
        self.flat, self.tree = bound.flat, bound.tree
        self.used = placed.used(bound)
        self.offsets: dict[str, int] = {}
        self.nodes: dict[str, Node] = {}

    def refuse(self, place: Place, what: str, expected: str) -> NoReturn:
        refuse(self.planning.topology, place, what, expected)

    def root(self, names: Sequence[str], outlet: int) -> Node:
        """Return the root node, whose columns `names` are the row ids. Subqueries that it reads are planned first.

        `outlet` is the number of the step that receives the whole rows."""
        for name in names:
            self.used[self.tree.root.alias].add(name)
        root = self._node(self.tree.root, names, outlet)
        self._place(root, 0)
        self.nodes = {node.alias: node for node in root.walk()}
        return root

    def _place(self, node: Node, offset: int) -> None:
        self.offsets[node.alias] = offset
        for lookup in node.lookups:
            self._place(lookup.child, offset + lookup.offset)

    # -- nodes

    def _node(self, branch: Branch, names: Sequence[str], target: int) -> Node:
        """Return the node of one table and all below it. `names` are the columns of its row ids.

        `target` is the step that receives its rows if it has no joins."""
        source, columns = self._source(branch, names, target)
        offset, lookups = len(columns), list[LookupJoin]()
        for child in branch.children:
            number = self.planning.number()
            node = self._node(child, [own for own, _ in (*child.pairs, *child.constants)], number)
            at = tuple(columns.index(theirs) for _, theirs in child.pairs)
            constants = tuple(value for _, value in child.constants)
            lookups.append(
                LookupJoin(number=number, columns=at, inner=child.inner, child=node, offset=offset, constants=constants)
            )
            offset += node.width
        return Node(
            alias=branch.alias,
            source=source,
            columns=columns,
            types=tuple(self._type(branch.alias, name) for name in columns),
            id_columns=tuple(columns.index(name) for name in names),
            filter=self._filter(branch, columns),
            lookups=tuple(lookups),
        )

    def _source(
        self, branch: Branch, names: Sequence[str], target: int
    ) -> tuple[PlanSource | Derived, tuple[str, ...]]:
        shape = self.flat.shapes[branch.alias]
        columns = tuple(name for name in shape.places() if name in self.used[branch.alias])
        if isinstance(shape, TableSchema):
            return self.planning.sources[shape.table_id], columns
        bound = self.flat.readings[branch.alias]
        direct = not branch.children and any(set(names) == {*key} for key in keys_of(shape))
        if isinstance(bound, BoundUnion | BoundPair | BoundInterval):  # its tag stands first, or the left row's name
            direct = direct and tuple(names) == shape.primary_key
        if not direct and not shape.primary_key:
            what = f"the rows of {branch.alias or 'a UNION ALL'}, which are joined to others, have no key"
            expected = "its key among its columns; of a UNION ALL also a literal of its own in each, 'web' AS channel"
            self.refuse(self.flat.relations[branch.alias].place, what, expected)
        if direct:
            fragments, columns = self.planning.read(bound, target, names, columns)
            return Derived(fragments=fragments, change_detector=None), columns
        change_detector = self.planning.number()
        # its rows' ids must be contained in the ids here, otherwise one id would stand for several rows
        key = next((key for key in keys_of(shape) if {*key} <= {*names}), shape.primary_key)
        by = () if key == shape.primary_key else key
        fragments, columns = self.planning.read(bound, change_detector, by, columns)
        return Derived(fragments=fragments, change_detector=change_detector), columns

    def _type(self, alias: str, name: str) -> LogicalType:
        column = self.flat.shapes[alias].column(name)
        assert column is not None  # joins.select.flatten refuses unknown columns
        return column.type

    def _filter(self, branch: Branch, names: tuple[str, ...]) -> Expression | None:
        """Return a filter for single rows of a captured table, or None. Rows that it drops need no state."""
        if branch.alias in self.flat.readings:
            return None

        def resolve(column: exp.Column) -> Typed:
            return value(column, names.index(column.name), self._type(column.table, column.name))

        row_filters = [self._condition(condition, resolve) for condition in self.placed.own.get(branch.alias, ())]
        if not self.tree.optional(branch.alias):
            own = [
                self._condition(condition, resolve)
                for condition in self.placed.filters
                if {column.table for column in condition.expression.find_all(exp.Column)} == {branch.alias}
            ]
            # one that can fail is left to WHERE, which reports dead letters
            row_filters += [expression for expression in own if expression.failed is None]
        return all_of(row_filters)

    # -- what is computed

    def finish(self, root: Node, items: Sequence[FlatItem], key: Sequence[str]) -> Finish:
        """Compile the result columns `items` and the conditions. `key` are the names of the items that form the row
        id."""
        types = root.flat_types()

        def resolve(column: exp.Column) -> Typed:
            index = self._index(column)
            return value(column, index, types[index])

        computed: list[Expression] = []
        outputs: list[Output] = []
        for item in items:
            node = item.expression
            if isinstance(node, exp.Column):
                outputs.append(self._plain(item, node, types, item.name in key))
                continue
            expression = self._expression(item, resolve)
            same = next((i for i, known in enumerate(computed) if known.sql == expression.sql), None)
            index = len(types) + (len(computed) if same is None else same)
            if same is None:
                computed.append(expression)
            outputs.append(Output(name=item.name, type=expression.type, index=index, origin=expression.text))
        where = all_of([self._condition(condition, resolve) for condition in self.placed.filters])
        return Finish(types=types, computed=tuple(computed), where=where, outputs=tuple(outputs))

    def _index(self, column: exp.Column) -> int:
        return self.offsets[column.table] + self.nodes[column.table].columns.index(column.name)

    def _plain(self, item: FlatItem, node: exp.Column, types: Sequence[LogicalType], key: bool) -> Output:
        found = self.tree.canonical(node.table, node.name) if key else (node.table, node.name)
        index = self._index(exp.column(found[1], table=found[0]))
        shape = self.flat.shapes[node.table]
        read = shape.column(node.name)
        assert read is not None  # joins.select.flatten refuses unknown columns
        if isinstance(read, QueryColumn):
            origin, nullable = read.origin, key and read.nullable
        else:
            assert isinstance(shape, TableSchema)
            origin, nullable = f"{shape.table_id}.{node.name}", False
        members = members_of(read)
        return Output(name=item.name, type=types[index], index=index, origin=origin, members=members, nullable=nullable)

    def _expression(self, item: FlatItem, resolve: Resolve) -> Expression:
        typed = self._compiled(item.expression, item.place, resolve)
        if typed.type == NULL:
            self.refuse(item.place, f"column {item.name} is NULL without a type", "CAST(NULL AS STRING), or a value")
        return Expression(
            sql=f"CAST({typed.sql} AS {spark_type(typed.type)})",
            failed=typed.failed,
            type=typed.type,
            text=item.text or text_of_expression(item.expression),
        )

    def _condition(self, condition: Condition, resolve: Resolve) -> Expression:
        typed = self._compiled(condition.expression, condition.place, resolve, condition=True)
        return condition_of(typed, condition.expression, condition.text)

    def _compiled(self, node: exp.Expr, place: Place, resolve: Resolve, *, condition: bool = False) -> Typed:
        try:
            return compiled(node, resolve, condition=condition)
        except Unsupported as error:
            self.refuse(place, error.what.replace("`", ""), error.expected)
