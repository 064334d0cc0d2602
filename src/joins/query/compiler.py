"""A table's query and the schemas → its plan; everything wrong or unsupported is refused at its place in the query."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count
from typing import NoReturn

from sqlglot import exp

from cdc.topology.topology import Table, Topology
from cdc.words import naming
from cdc.words.schema import TableId, TableSchema
from cdc.words.types import LogicalType
from joins.query.drift import default_of
from joins.query.expressions import ExpressionCompiler, Resolve, Typed, Unsupported, any_of
from joins.query.flatten import Condition, Flat, FlatItem, flatten
from joins.query.functions import FUNCTIONS
from joins.query.plan import (
    SINK,
    STAR,
    Expression,
    Finish,
    Fragment,
    Hop,
    Node,
    Output,
    Plan,
    PlanSource,
    Sink,
    steps_of,
)
from joins.query.sql import Place, refuse
from joins.query.tree import Branch, Tree, build_trees
from joins.query.value_types import MOST_DIGITS, NULL, spark_type

_MOST_HOPS = 0x7F


def compile_plan(topology: Topology, table: Table, schemas: Mapping[TableId, TableSchema]) -> Plan:
    """The plan of a table's query; TopologyError for what the schemas show to be wrong.

    `schemas` holds every table of `joins.query.sql.tables_of`. `row_key` is proved to be a key of the result: its
    columns are columns of the root, or equal to such by inner joins, and hold the root's primary key; every join adds
    at most one row. Without a row_key the root's primary key is it.
    """
    flat = flatten(topology, table, schemas)
    by_alias = {}
    for alias, relation in flat.relations.items():
        assert relation.table_id is not None  # flat queries read captured tables only
        by_alias[alias] = schemas[relation.table_id]
    trees = build_trees(topology, flat, by_alias)
    compilers = [_PlanCompiler(topology, table, flat, tree, by_alias) for tree in trees]
    for compiler in compilers:
        if compiler.row_key_fault() is None:
            return compiler.compile()
    fault = compilers[0].row_key_fault()
    assert fault is not None  # else the loop had returned
    raise topology.error(f"tables.{table.name}.row_key", *fault)


class _PlanCompiler:
    def __init__(
        self, topology: Topology, table: Table, flat: Flat, tree: Tree, schemas: Mapping[str, TableSchema]
    ) -> None:
        self.topology, self.table, self.flat, self.tree, self.schemas = topology, table, flat, tree, schemas
        self.items = {item.name: item for item in flat.items}
        self.numbers = count()

    def refuse(self, place: Place, what: str, expected: str) -> NoReturn:
        refuse(self.topology, place, what, expected)

    # -- the row key

    def row_key_names(self) -> tuple[str, ...] | None:
        """The names in the result that form the row key; None if the root's key is not among the columns."""
        if self.table.row_key:
            return self.table.row_key
        root = self.tree.root.alias
        found = []
        for column in self.schemas[root].primary_key:
            name = next((i.name for i in self.flat.items if self._key_column(i) == (root, column)), None)
            if name is None:
                return None
            found.append(name)
        return tuple(found) or None

    def _key_column(self, item: FlatItem) -> tuple[str, str] | None:
        node = item.expression
        if not isinstance(node, exp.Column):
            return None
        found = self.tree.canonical(node.table, node.name)
        same = self._type(*found) == self._type(node.table, node.name)
        return found if same else (node.table, node.name)

    def row_key_fault(self) -> tuple[str, str] | None:
        """What is wrong with the row key under this tree, and what is expected; None if it is a key of the result."""
        root = self.tree.root.alias
        primary = self.schemas[root].primary_key
        if not primary:
            return f"no key of the result: {root} has no primary key", "rows of a table with a primary key"
        names = self.row_key_names()
        if names is None:
            return "no row_key, and the query leaves out " + root + "'s key", f"{', '.join(primary)} of {root} in it"
        columns = []
        for name in names:
            if name not in self.items:
                return f"unknown column {name}", "one of " + ", ".join(self.items)
            found = self._key_column(self.items[name])
            if found is None:
                return f"column {name} is computed", f"plain columns of {root}"
            if found[0] != root:
                return (
                    f"column {name} comes from the joined table {found[0]}",
                    f"columns of {root}, whose rows they are",
                )
            column = self.schemas[root].column(found[1])
            joined = {own for child in self.tree.root.children if child.inner for _, own in child.pairs}
            if column is not None and column.nullable and found[1] not in (*primary, *joined):
                return f"column {name} may be NULL", "columns that are NOT NULL"
            columns.append(found[1])
        if missing := [column for column in primary if column not in columns]:
            what = f"no key of the result: {root}.{missing[0]}, of the primary key, is not in it"
            return what, f"{', '.join(primary)} of {root} in query and row_key"
        return None

    # -- the plan

    def compile(self) -> Plan:
        used = self._used_columns()
        sources = self._sources(used)
        key_columns = [found[1] for name in self.row_key_names() or () if (found := self._key_column(self.items[name]))]
        root = self._node(self.tree.root, key_columns, used, sources)
        self.offsets: dict[str, int] = {}
        self._place_columns(root, 0)
        self.nodes = {node.alias: node for node in root.walk()}
        if len(self.nodes) > _MOST_HOPS:
            self.refuse(self.flat.items[0].place, f"{len(self.nodes)} tables", f"at most {_MOST_HOPS}")
        sink = Sink(
            topology=self.topology.name,
            table=self.table.name,
            row_key=self.row_key_names() or (),
            family=self.table.family,
            salt_buckets=self.table.salt_buckets,
        )
        finish = self._finish(root)
        steps = steps_of(root, SINK, iter(range(STAR, SINK)))
        fragment = Fragment(number=0, root=root, steps=steps, finish=finish, group=None, target=SINK)
        return Plan(fragments=(fragment,), sources=tuple(sources.values()), sink=sink)

    def _used_columns(self) -> dict[str, set[str]]:
        used = {alias: set(schema.primary_key) for alias, schema in self.schemas.items()}
        for branch in self.tree.branches.values():
            for own, theirs in branch.pairs:
                assert branch.parent is not None  # pairs lead to a parent
                used[branch.alias].add(own)
                used[branch.parent.alias].add(theirs)
        for node in (*(i.expression for i in self.flat.items), *(c.expression for c in self.tree.filters)):
            for column in node.find_all(exp.Column):
                used[column.table].add(column.name)
        for name in self.row_key_names() or ():
            if (found := self._key_column(self.items[name])) is not None:
                used[found[0]].add(found[1])
        return used

    def _sources(self, used: Mapping[str, set[str]]) -> dict[TableId, PlanSource]:
        together: dict[TableId, set[str]] = {}
        for alias, columns in used.items():
            together.setdefault(self.schemas[alias].table_id, set()).update(columns)
        made = {}
        for alias, schema in self.schemas.items():
            names = tuple(name for name in schema.places() if name in together[schema.table_id])
            source = self.topology.sources[schema.table_id.source]
            made[schema.table_id] = PlanSource(
                table_id=schema.table_id,
                topic=naming.change_topic(self.topology.name, schema.table_id),
                key=schema.primary_key,
                columns=names,
                types=tuple(self._type(alias, name) for name in names),
                defaults=tuple(default_of(schema, name) for name in names),
                needs_latest=source.needs_latest,
            )
        return made

    def _type(self, alias: str, name: str) -> LogicalType:
        column = self.schemas[alias].column(name)
        assert column is not None  # joins.query.flatten refuses unknown columns
        try:
            return column.type
        except ValueError as error:
            self.refuse(self.flat.relations[alias].place, f"{alias}.{name}: {error}", "a column of another type")

    def _node(
        self, branch: Branch, id_columns: list[str], used: Mapping[str, set[str]], sources: Mapping[TableId, PlanSource]
    ) -> Node:
        schema = self.schemas[branch.alias]
        names = tuple(name for name in schema.places() if name in used[branch.alias])
        offset, hops = len(names), list[Hop]()
        for child in branch.children:
            number = next(self.numbers)
            node = self._node(child, [own for own, _ in child.pairs], used, sources)
            columns = tuple(names.index(theirs) for _, theirs in child.pairs)
            hops.append(Hop(number=number, columns=columns, inner=child.inner, child=node, offset=offset))
            offset += node.width
        return Node(
            alias=branch.alias,
            source=sources[schema.table_id],
            columns=names,
            types=tuple(self._type(branch.alias, name) for name in names),
            id_columns=tuple(names.index(name) for name in id_columns),
            filter=self._filter(branch, names),
            hops=tuple(hops),
        )

    def _place_columns(self, node: Node, offset: int) -> None:
        self.offsets[node.alias] = offset
        for hop in node.hops:
            self._place_columns(hop.child, offset + hop.offset)

    # -- expressions

    def _filter(self, branch: Branch, names: tuple[str, ...]) -> Expression | None:
        """The conditions on one table whose rows must be there: what does not satisfy them needs no state."""
        above: Branch | None = branch
        while above is not None and above.parent is not None:
            if not above.inner:
                return None
            above = above.parent
        own = [
            condition
            for condition in self.tree.filters
            if {column.table for column in condition.expression.find_all(exp.Column)} == {branch.alias}
        ]

        def resolve(column: exp.Column) -> Typed:
            return _value(column, names.index(column.name), self._type(column.table, column.name))

        compiled = [self._condition(condition, resolve) for condition in own]
        # one that can fail is left to WHERE, which tells the dead letters
        compiled = [expression for expression in compiled if expression.failed is None]
        return _all_of(compiled)

    def _finish(self, root: Node) -> Finish:
        types = root.flat_types()

        def resolve(column: exp.Column) -> Typed:
            index = self.offsets[column.table] + self.nodes[column.table].columns.index(column.name)
            return _value(column, index, types[index])

        computed: list[Expression] = []
        outputs: list[Output] = []
        for item in self.flat.items:
            node = item.expression
            if isinstance(node, exp.Column):
                found = (
                    self.tree.canonical(node.table, node.name) if item.name in (self.row_key_names() or ()) else None
                )
                column = node if found is None else exp.column(found[1], table=found[0])
                index = self.offsets[column.table] + self.nodes[column.table].columns.index(column.name)
                origin = f"{self.schemas[node.table].table_id}.{node.name}"
                read = self.schemas[node.table].column(node.name)
                members = read is not None and read.column_type.lower().startswith("set(")
                outputs.append(Output(name=item.name, type=types[index], index=index, origin=origin, members=members))
                continue
            expression = self._expression(item, resolve)
            same = next((i for i, known in enumerate(computed) if known.sql == expression.sql), None)
            index = len(types) + (len(computed) if same is None else same)
            if same is None:
                computed.append(expression)
            outputs.append(Output(name=item.name, type=expression.type, index=index, origin=expression.text))
        where = _all_of([self._condition(condition, resolve) for condition in self.tree.filters])
        return Finish(types=types, computed=tuple(computed), where=where, outputs=tuple(outputs))

    def _expression(self, item: FlatItem, resolve: Resolve) -> Expression:
        typed = self._compiled(item.expression, item.place, resolve)
        if typed.type == NULL:
            self.refuse(item.place, f"column {item.name} is NULL without a type", "CAST(NULL AS STRING), or a value")
        return Expression(
            sql=f"CAST({typed.sql} AS {spark_type(typed.type)})",
            failed=typed.failed,
            type=typed.type,
            text=_text(item.expression),
        )

    def _condition(self, condition: Condition, resolve: Resolve) -> Expression:
        typed = self._compiled(condition.expression, condition.place, resolve, condition=True)
        text = _text(condition.expression)
        if isinstance(condition.expression, exp.Or):
            text = f"({text})"
        return Expression(sql=typed.sql, failed=typed.failed, type=typed.type, text=text)

    def _compiled(self, node: exp.Expr, place: Place, resolve: Resolve, *, condition: bool = False) -> Typed:
        compiler = ExpressionCompiler(resolve, FUNCTIONS)
        try:
            return compiler.condition(node) if condition else compiler.compile(node)
        except Unsupported as error:
            self.refuse(place, error.what.replace("`", ""), error.expected)


def _value(column: exp.Column, index: int, type_: LogicalType) -> Typed:
    """A column in an expression; Spark has no type for numbers of more than 38 digits, though MySQL has them."""
    if type_.kind == "decimal" and type_.precision > MOST_DIGITS:
        what = f"{column.sql('spark')} is {type_}: expressions have at most {MOST_DIGITS} digits"
        raise Unsupported(
            column, what, f"the plain column, which is kept whole, or one of {MOST_DIGITS} digits or fewer"
        )
    return Typed(sql=f"{{{index}}}", type=type_)


def _text(node: exp.Expr) -> str:
    return node.sql("spark").replace("`", "")


def _all_of(conditions: list[Expression]) -> Expression | None:
    if not conditions:
        return None
    failed, earlier = [], "TRUE"
    for one in conditions:
        if one.failed is not None:
            failed.append(f"({earlier} AND {one.failed})")
        earlier += f" AND NOT ({one.sql} <=> FALSE)"
    return Expression(
        sql=" AND ".join(f"({one.sql})" for one in conditions),
        failed=any_of(*failed),
        type=conditions[0].type,
        text=" AND ".join(one.text for one in conditions),
    )
