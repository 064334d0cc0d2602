"""Compile the query of a joined table to its plan (the stages of `joins.select`). Errors name the position in the
query."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import NoReturn

import orjson
from sqlglot import exp

from cdc.model import naming
from cdc.model.patterns import merged_named
from cdc.model.schema import TableId, TableSchema
from cdc.topology.topology import Table, Topology
from joins.query.drift import default_of
from joins.query.group import Grouping, Temporal
from joins.query.nodes import Derived, Interval, Node, Pair, PlanSource
from joins.query.plan import MULTI_JOIN, SINK, Finish, Fragment, Output, Plan, Sink, steps_of
from joins.select.bound import (
    BoundGroup,
    BoundInterval,
    BoundPair,
    BoundTemporal,
    BoundTop,
    BoundTree,
    BoundUnion,
    BoundWindow,
)
from joins.select.flat import FlatItem, ReadQuery
from joins.select.fragment import TreeCompiler
from joins.select.over.groupings import held_by, top_grouping, window_grouping
from joins.select.over.topn import Ties
from joins.select.placed_conditions import place_conditions
from joins.select.rowkey import RowKey, bound_query, row_keys
from joins.select.sql import Place, refuse

_MOST_NUMBERS = 0x7F


def compile_plan(topology: Topology, table: Table, schemas: Mapping[TableId, TableSchema]) -> Plan:
    """Return the plan of a table's query, whose row key is proved to be unique (`joins.select.rowkey`).

    `schemas` must have every table of `joins.select.parser.tables_of`. Raises TopologyError for errors in the query."""
    return _Planner(topology, table, schemas).plan(bound_query(topology, table, schemas)[1])


def ties_of(topology: Topology, table: Table, schemas: Mapping[TableId, TableSchema]) -> Ties:
    """Return, by position of each ROW_NUMBER() in a table's query, the expressions that decide between equal rows.

    They are the key of the numbered rows. A query for another database, such as DuckDB, must append them to its
    ORDER BY."""
    return bound_query(topology, table, schemas)[0].ties


class _Planner:
    """Stage 4: makes fragments of bound queries. Each fragment is added before the one that reads its rows."""

    def __init__(self, topology: Topology, table: Table, schemas: Mapping[TableId, TableSchema]) -> None:
        self.topology, self.table, self.schemas = topology, table, schemas
        self._numbers, self._stars = count(), iter(range(MULTI_JOIN, SINK))
        self.fragments: list[Fragment] = []
        self.sources: Mapping[TableId, PlanSource] = {}

    def refuse(self, place: Place, what: str, expected: str) -> NoReturn:
        refuse(self.topology, place, what, expected)

    def plan(self, bound: BoundTree) -> Plan:
        """Return the plan of a whole query, whose last fragment sends its rows to the sink."""
        key = self._row_key(bound)
        self.sources = self._sources(bound)
        self._tree(bound, SINK, key.columns(), items=bound.flat.items, key=key.names() or ())
        if (last := self.number()) > _MOST_NUMBERS:
            self.refuse(bound.place, f"{last} joins and groups", f"at most {_MOST_NUMBERS}")
        sink = Sink(
            topology=self.topology.name,
            table=self.table.name,
            row_key=key.names() or (),
            family=self.table.family,
            salt_buckets=self.table.salt_buckets,
        )
        return Plan(fragments=tuple(self.fragments), sources=tuple(self.sources.values()), sink=sink)

    def _row_key(self, bound: BoundTree) -> RowKey:
        """Return the row key that is proved to be unique, and choose its tree. Raises TopologyError if there is
        none."""
        keys = row_keys(self.table, bound)
        found = next((key for key in keys if key.fault() is None), None)
        if found is None:
            fault = keys[0].fault()
            assert fault is not None  # otherwise the key would have been found
            raise self.topology.error(f"tables.{self.table.name}.row_key", *fault)
        bound.tree = found.tree
        return found

    # -- captured tables

    def _sources(self, bound: BoundTree) -> dict[TableId, PlanSource]:
        """Return the captured tables that the query reads anywhere, each with the columns that it uses."""
        used: dict[TableId, set[str]] = {}
        places: dict[TableId, Place] = {}
        for tree in _trees(bound):
            for alias, columns in place_conditions(tree).used(tree).items():
                schema = tree.flat.shapes[alias]
                if isinstance(schema, TableSchema):
                    used.setdefault(schema.table_id, set()).update(columns)
                    places.setdefault(schema.table_id, tree.flat.relations[alias].place)
        return {table_id: self._source(table_id, columns, places[table_id]) for table_id, columns in used.items()}

    def _source(self, table_id: TableId, used: set[str], place: Place) -> PlanSource:
        schema = self.schemas[table_id]
        names = tuple(name for name in schema.places() if name in used)
        types = []
        for name in names:
            column = schema.column(name)
            assert column is not None  # joins.select.flatten refuses unknown columns
            try:
                types.append(column.type)
            except ValueError as error:
                self.refuse(place, f"{table_id}.{name}: {error}", "a column of another type")
        source = self.topology.sources[table_id.source]
        merged = merged_named(table_id, source.merged)
        routing, name = self.topology.routing, naming.change_topic(self.topology.name, table_id)
        return PlanSource(
            table_id=table_id,
            topic=routing.topic(name),
            shared_as=name if routing.shares(name) else "",
            merged="" if merged is None else merged.column,
            key=schema.primary_key,
            columns=names,
            types=tuple(types),
            defaults=tuple(default_of(schema, name) for name in names),
            needs_latest=source.needs_latest,
            rereads=not source.is_only_reported,
        )

    # -- fragments

    def number(self) -> int:
        """Return the next unused step number."""
        return next(self._numbers)

    def read(
        self, bound: ReadQuery, target: int, names: Sequence[str], wanted: Sequence[str]
    ) -> tuple[tuple[int, ...], tuple[str, ...]]:
        """Plan a query whose rows another step, number `target`, reads. See `joins.select.fragment.Planning.read`."""
        if isinstance(bound, BoundGroup):
            return self._group(bound, target, names)
        if isinstance(bound, BoundUnion):
            return self._union(bound, target, names or bound.rows.primary_key, wanted), tuple(wanted)
        if isinstance(bound, BoundPair):
            return (self._pair(bound, target, wanted),), tuple(wanted)
        if isinstance(bound, BoundInterval):
            return (self._interval(bound, target, wanted),), tuple(wanted)
        if isinstance(bound, BoundTop | BoundWindow):
            return (self._ordered(bound, target, names, wanted),), tuple(wanted)
        if isinstance(bound, BoundTemporal):
            return self._temporal(bound, target, names, wanted)
        assert isinstance(bound, BoundTree)  # the last possible kind
        return (self._sent(bound, target, names, wanted),), tuple(wanted)

    def _sent(
        self, bound: BoundTree, target: int, names: Sequence[str], wanted: Sequence[str], tag: str | None = None
    ) -> int:
        """Add a fragment whose rows another step, number `target`, reads. Return the fragment's number.

        Rows have only the `wanted` columns. The columns `names` are their id, by default the query's key. `tag`
        precedes the ids of a UNION ALL's branch."""
        items = {item.name: item for item in place_conditions(bound).items}
        shown = [items[name].expression for name in names or bound.rows.primary_key]
        columns = [bound.tree.canonical(n.table, n.name)[1] for n in shown if isinstance(n, exp.Column)]
        root = bound.flat.shapes[bound.tree.root.alias]
        return self._tree(
            bound,
            target,
            columns or root.primary_key,
            items=[items[name] for name in wanted],
            key=names,
            sent=True,
            tag=tag,
        )

    def _temporal(
        self, bound: BoundTemporal, target: int, names: Sequence[str], wanted: Sequence[str]
    ) -> tuple[tuple[int, ...], tuple[str, ...]]:
        """Add the fragment of rows that conditions on the time select. Its rows end with the values that these use."""
        step, columns = self.number(), (*wanted, *(name for name in bound.values if name not in wanted))
        number = self._sent(bound.inner, step, names, columns)
        at = [columns.index(name) for name in bound.values]
        bounds = tuple(replace(one, value=at[one.value]) for one in bound.bounds)
        self.fragments[number] = replace(
            self.fragments[number], target=target, temporal=Temporal(number=step, bounds=bounds)
        )
        return (number,), columns

    def _tree(
        self,
        bound: BoundTree,
        target: int,
        columns: Sequence[str],
        *,
        items: Sequence[FlatItem],
        key: Sequence[str],
        sent: bool = False,
        tag: str | None = None,
    ) -> int:
        """Add the fragment of a query without groups, and return its number.

        `columns` of the root are the row ids. `items` are computed; `key` names those that form the id. With `sent`,
        rows contain only these items. For `tag` see `_sent`."""
        kept = place_conditions(bound)
        named = {item.name: item for item in kept.items}
        compiler = TreeCompiler(self, bound, kept)
        root = compiler.root(columns, target)
        finish = compiler.finish(root, [named[item.name] for item in items], key)
        picks = tuple(output.index for output in finish.outputs)
        whole = picks == tuple(range(len(finish.types) + len(finish.computed)))
        fragment = Fragment(
            number=len(self.fragments),
            root=root,
            steps=steps_of(root, target, self._stars),
            finish=finish,
            group=None,
            target=target,
            picks=picks if sent and not whole else None,
            tag=tag,
        )
        self.fragments.append(fragment)
        return fragment.number

    def _group(self, bound: BoundGroup, target: int, names: Sequence[str]) -> tuple[tuple[int, ...], tuple[str, ...]]:
        """Add the fragment of a grouped query. Return its number and its columns: first the key, in the order of
        `names`."""
        inner, places = bound.inner, bound.rows.places()
        order = [places.index(name) for name in names] or list(range(bound.keys))
        change_detector, number = self.number(), self.number()
        compiler = TreeCompiler(self, inner, kept := place_conditions(inner))
        root = compiler.root(inner.flat.shapes[inner.tree.root.alias].primary_key, change_detector)
        finish = compiler.finish(root, kept.items, ())
        keys = [finish.outputs[i] for i in order]
        group = Grouping(
            change_detector=change_detector,
            number=number,
            keys=tuple(output.index for output in keys),
            key_types=tuple(output.type for output in keys),
            arguments=tuple(output.index for output in finish.outputs[bound.keys :]),
            totals=tuple(bound.keeping.totals),
            bags=tuple(bound.keeping.bags),
            results=tuple(bound.keeping.results),
            always=None if bound.always is None else _text_of([bound.always[i] for i in order]),
        )
        return (self._grouped(root, finish, group, target),), (*(places[i] for i in order), *places[bound.keys :])

    def _ordered(self, bound: BoundTop | BoundWindow, target: int, names: Sequence[str], wanted: Sequence[str]) -> int:
        """Add the fragment of a query whose partitions are ordered. Row ids are the columns `names`, or its own
        key."""
        inner, numbers = bound.inner, (self.number(), self.number())
        compiler = TreeCompiler(self, inner, kept := place_conditions(inner))
        root = compiler.root(inner.flat.shapes[inner.tree.root.alias].primary_key, numbers[0])
        held = held_by(bound, names, wanted)
        items = [item for item in kept.items if item.name in (*bound.partition, *held)]
        finish = compiler.finish(root, items, ())
        outputs = {output.name: output for output in finish.outputs}
        keys = names or bound.rows.primary_key
        if isinstance(bound, BoundTop):
            group = top_grouping(bound, numbers, held, outputs, keys, wanted)
        else:
            group = window_grouping(bound, numbers, held, outputs, keys, wanted)
        return self._grouped(root, finish, group, target)

    def _grouped(self, root: Node, finish: Finish, group: Grouping, target: int) -> int:
        """Add a fragment whose rows are grouped, and return its number."""
        fragment = Fragment(
            number=len(self.fragments),
            root=root,
            steps=steps_of(root, group.change_detector, self._stars),
            finish=finish,
            group=group,
            target=target,
        )
        self.fragments.append(fragment)
        return fragment.number

    def _union(self, bound: BoundUnion, target: int, names: Sequence[str], wanted: Sequence[str]) -> tuple[int, ...]:
        """Add a fragment per branch of a UNION ALL. Row ids are those of its key `names`, which begins with the
        branch's literal, or with its index, so they differ."""
        places = bound.rows.places()
        tagged = 0 if bound.tags is None else len(bound.tags[0])
        numbers = []
        for i, branch in enumerate(bound.branches):
            theirs = branch.rows.places()
            tag = _text_of([i] if bound.tags is None else bound.tags[1][i])
            key = [theirs[places.index(name)] for name in names[tagged:]]
            columns = [theirs[places.index(name)] for name in wanted]
            numbers.append(self._sent(branch, target, key, columns, tag))
        return tuple(numbers)

    def _pair(self, bound: BoundPair, target: int, wanted: Sequence[str]) -> int:
        """Add the fragment of a many-to-many join, and return its number."""
        number = self.number()
        left, right = self._side_node(bound.left), self._side_node(bound.right)
        pair = Pair(
            number=number,
            left=left,
            right=right,
            left_key=tuple(left.columns.index(name) for name, _ in bound.keys),
            right_key=tuple(right.columns.index(name) for _, name in bound.keys),
            left_stays=bound.left_stays,
            right_stays=bound.right_stays,
        )
        return self._joined_rows(bound, pair, (*left.columns, *right.columns), target, wanted)

    def _interval(self, bound: BoundInterval, target: int, wanted: Sequence[str]) -> int:
        """Add the fragment of a join by time, and return its number."""
        numbers = self.number(), self.number()
        left, right = (
            TreeCompiler(self, side, place_conditions(side)).root(
                side.flat.shapes[side.tree.root.alias].primary_key, number
            )
            for side, number in zip((bound.left, bound.right), numbers, strict=True)
        )
        names = [tuple(f"{side.alias}.{name}" for name in side.columns) for side in (left, right)]
        interval = Interval(
            left_number=numbers[0],
            right_number=numbers[1],
            left=left,
            right=right,
            left_key=tuple(names[0].index(name) for name, _ in bound.keys),
            right_key=tuple(names[1].index(name) for _, name in bound.keys),
            left_time=names[0].index(bound.times[0]),
            right_time=names[1].index(bound.times[1]),
            earliest=bound.earliest,
            latest=bound.latest,
            left_stays=bound.left_stays,
            lateness=bound.lateness,
        )
        return self._joined_rows(bound, interval, (*names[0], *names[1]), target, wanted)

    def _joined_rows(
        self, bound: BoundPair | BoundInterval, root: Pair | Interval, names: Sequence[str], target: int,
        wanted: Sequence[str],
    ) -> int:  # fmt: skip
        """Add the fragment of a many-to-many join or a join by time, with the `wanted` columns in its rows."""
        named = {column.name: column for column in bound.rows.columns}
        types = root.flat_types()
        picks = tuple(names.index(name) for name in wanted)
        outputs = tuple(
            Output(name=name, type=types[at], index=at, origin=named[name].origin, members=named[name].members)
            for name, at in zip(wanted, picks, strict=True)
        )
        fragment = Fragment(
            number=len(self.fragments),
            root=root,
            steps=(),
            finish=Finish(types=types, computed=(), where=None, outputs=outputs),
            group=None,
            target=target,
            picks=None if picks == tuple(range(len(types))) else picks,
        )
        self.fragments.append(fragment)
        return fragment.number

    def _side_node(self, bound: BoundTree) -> Node:
        """Return the node for one side of a many-to-many join. A change detector precedes it."""
        change_detector, columns, key = self.number(), bound.rows.places(), bound.rows.primary_key
        number = self._sent(bound, change_detector, key, columns)
        types = {column.name: column.type for column in bound.rows.columns}
        return Node(
            alias=columns[0].partition(".")[0],
            source=Derived(fragments=(number,), change_detector=change_detector),
            columns=columns,
            types=tuple(types[name] for name in columns),
            id_columns=tuple(columns.index(name) for name in key),
            filter=None,
            lookups=(),
        )


def _trees(bound: ReadQuery) -> Iterator[BoundTree]:
    """Yield every bound tree of a query, those of its subqueries included."""
    if isinstance(bound, BoundGroup | BoundTop | BoundWindow | BoundTemporal):
        yield from _trees(bound.inner)
    elif isinstance(bound, BoundUnion):
        for branch in bound.branches:
            yield from _trees(branch)
    elif isinstance(bound, BoundPair | BoundInterval):
        yield from _trees(bound.left)
        yield from _trees(bound.right)
    elif isinstance(bound, BoundTree):
        yield bound
        for reading in bound.flat.readings.values():
            yield from _trees(reading)


def _text_of(values: Sequence[str | int | bool]) -> str:
    """Return the id of a row with these key values, in the form that `joins.runtime.records` writes."""
    return orjson.dumps(values).decode()[1:-1]
