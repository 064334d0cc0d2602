"""Trace the columns of a query's result back to the source columns that they come from, by the plan. Other columns
decide which rows the result has: those of joins, conditions, groups and orders."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from string import Formatter
from typing import Literal, NamedTuple

from cdc.model.types import LogicalType
from joins.query.aggregate_functions import BY_NAME
from joins.query.group import Grouping, Result, Windows
from joins.query.nodes import Interval, Node, PlanSource, Root
from joins.query.plan import Fragment, Plan


class Input(NamedTuple):
    """A source column that a result column is computed from, with the number of its node (`Plan.nodes`).

    `plain`: the value is passed on unchanged. `grouped`: it is one of a group, such as its key. `aggregated`: a
    function computes it from the rows of a group."""

    node: int
    column: str
    plain: bool = True
    grouped: bool = False
    aggregated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Lineage:
    """A result column, its type, its expression, and its source columns: for a UNION those of every branch."""

    column: str
    type: LogicalType
    expression: str
    inputs: tuple[Input, ...]


Decision = Literal["JOIN", "FILTER", "GROUP_BY", "SORT", "WINDOW"]  # as OpenLineage calls them


class Decider(NamedTuple):
    """A source column, with the number of its node, that decides which rows exist or which of them meet."""

    node: int
    column: str
    how: Decision


def lineages(plan: Plan) -> tuple[Lineage, ...]:
    """Return the lineage of every column, in the order of the result."""
    tracer = _Tracer(plan)
    return tuple(
        Lineage(
            column=output.name,
            type=output.type,
            expression=output.origin,
            inputs=tracer.value(plan.last, output.index),
        )
        for output in plan.outputs
    )


def deciders(plan: Plan) -> tuple[Decider, ...]:
    """Return the source columns that decide which rows the result has, each once for every way."""
    tracer = _Tracer(plan)
    found = (
        Decider(one.node, one.column, how)
        for fragment in plan.fragments
        for how, inputs in _deciding(tracer, fragment)
        for one in inputs
    )
    return tuple(dict.fromkeys(found))


def _deciding(tracer: _Tracer, fragment: Fragment) -> Iterator[tuple[Decision, tuple[Input, ...]]]:
    """Yield the inputs of what decides about the rows of a fragment."""
    for index in _meeting(fragment.root):
        yield "JOIN", tracer.value(fragment, index)
    if (where := fragment.finish.where) is not None:
        for index in _used(where.sql):
            yield "FILTER", tracer.value(fragment, index)
    for bound in () if fragment.temporal is None else fragment.temporal.bounds:
        yield "FILTER", tracer.sent(fragment, bound.value)
    if (group := fragment.group) is None:
        return
    for index in group.keys:
        yield "GROUP_BY", tracer.value(fragment, index)
    rows = group.top or group.windows
    for argument in () if rows is None else group.bags[0].arguments[: rows.ordered]:
        yield "SORT" if rows is group.top else "WINDOW", tracer.value(fragment, group.arguments[argument])


def _meeting(root: Root) -> Iterator[int]:
    """Yield the indexes of the values, in the whole rows of a tree, by which rows of two nodes meet."""
    if not isinstance(root, Node):
        yield from root.left_key
        yield from (len(root.left.columns) + index for index in root.right_key)
        if isinstance(root, Interval):
            yield from (root.left_time, len(root.left.columns) + root.right_time)
        return
    begin = 0
    for node in root.walk():
        for lookup in node.lookups:
            yield from (begin + index for index in lookup.columns)
            yield from (begin + lookup.offset + index for index in lookup.child.id_columns)
        begin += len(node.columns)


@dataclass(frozen=True, slots=True)
class _Tracer:
    """Follows values of fragments to source columns. It keeps what it finds: a value may be read in many places."""

    plan: Plan
    _values: dict[tuple[int, int], tuple[Input, ...]] = field(default_factory=dict)

    def value(self, fragment: Fragment, index: int) -> tuple[Input, ...]:
        """Return the source columns of value number `index` of a fragment's whole rows, computed values included."""
        key = fragment.number, index
        if key not in self._values:
            self._values[key] = tuple(dict.fromkeys(self._value(fragment, index)))
        return self._values[key]

    def _value(self, fragment: Fragment, index: int) -> Iterator[Input]:
        number = self.plan.first_node(fragment)
        for node in fragment.root.walk():
            if index < len(node.columns):
                if not isinstance(node.source, PlanSource):
                    for one in node.source.fragments:
                        yield from self.sent(self.plan.fragments[one], index)
                elif node.columns[index] in node.source.columns:  # not a constant by which all rows of two tables meet
                    yield Input(number, node.columns[index])
                return
            index -= len(node.columns)
            number += 1
        for used in _used(fragment.finish.computed[index].sql):
            yield from (one._replace(plain=False) for one in self.value(fragment, used))

    def sent(self, fragment: Fragment, index: int) -> tuple[Input, ...]:
        """Return the source columns of value number `index` of the rows that a fragment sends to its reader."""
        if (group := fragment.group) is None:
            return self.value(fragment, index if fragment.picks is None else fragment.picks[index])
        computed = _is_computed(group, index)
        return tuple(
            one._replace(grouped=True, aggregated=one.aggregated or computed)
            for place in _of_group(group, index)
            for one in self.value(fragment, place)
        )


def _is_computed(group: Grouping, index: int) -> bool:
    """Return whether a function computes the value `index` of a group, so that it is no value of a row."""
    rows = group.top or group.windows
    return (
        index >= len(group.keys)
        if rows is None
        else rows.values[index] >= len(group.keys) + len(group.bags[0].arguments)
    )


def _of_group(group: Grouping, index: int) -> Iterator[int]:
    """Yield the indexes of the values, in a fragment's whole rows, from which a group's value `index` is computed."""
    keys = len(group.keys)
    if group.top is not None:
        (bag,) = group.bags
        reported = [*group.keys, *(group.arguments[one] for one in bag.arguments)]
        yield from reported[group.top.values[index] :][:1]  # the row's number follows them
    elif group.windows is not None:
        yield from _of_window(group, group.windows, group.windows.values[index])
    elif index < keys:
        yield group.keys[index]
    else:
        yield from (group.arguments[one] for one in _arguments(group, group.results[index - keys]))


def _of_window(group: Grouping, windows: Windows, place: int) -> Iterator[int]:
    """Yield the indexes of the values from which value number `place` is computed: of a key, a tuple or a function."""
    (bag,) = group.bags
    row = [*group.keys, *(group.arguments[one] for one in bag.arguments)]
    held = row[len(group.keys) :]
    if place < len(row):
        yield row[place]
        return
    function = windows.functions[place - len(row)]
    if function.kind == "aggregate":
        result = windows.results[function.number]
        reads = BY_NAME[result.function].reads
        if reads != "rows":
            total = reads == "total"
            read = (windows.totals[result.of].argument,) if total else windows.bags[result.of].arguments
            yield from (held[one] for one in read)
        return
    yield from (held[one] for one in (function.argument, function.default) if one >= 0)


def _arguments(group: Grouping, result: Result) -> tuple[int, ...]:
    match BY_NAME[result.function].reads:
        case "rows":
            return ()
        case "total":
            return (group.totals[result.of].argument,)
    return group.bags[result.of].arguments


def _used(sql: str) -> list[int]:
    """Return the indexes of the values that an expression's SQL uses."""
    return sorted({int(name) for _, name, _, _ in Formatter().parse(sql) if name})
