"""Trace the columns of a query's result back to the source columns that they come from, by the plan."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from string import Formatter
from typing import NamedTuple

from cdc.model.types import LogicalType
from joins.query.aggregate_functions import BY_NAME
from joins.query.group import Grouping, Result, Windows
from joins.query.nodes import PlanSource
from joins.query.plan import Fragment, Plan


class Input(NamedTuple):
    """A source column that a result column is computed from, with the number of its node (`Plan.nodes`).

    `plain`: the value is passed on unchanged. `grouped`: it is aggregated over the rows of a group."""

    node: int
    column: str
    plain: bool = True
    grouped: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Lineage:
    """A result column, its type, its expression, and its source columns: for a UNION those of every branch."""

    column: str
    type: LogicalType
    expression: str
    inputs: tuple[Input, ...]


def lineages(plan: Plan) -> tuple[Lineage, ...]:
    """Return the lineage of every column, in the order of the result."""
    return tuple(
        Lineage(
            column=output.name,
            type=output.type,
            expression=output.origin,
            inputs=tuple(dict.fromkeys(_of_value(plan, plan.last, output.index))),
        )
        for output in plan.outputs
    )


def _of_value(plan: Plan, fragment: Fragment, index: int) -> Iterator[Input]:
    """Yield the source columns of value number `index` of a fragment's whole rows, computed values included."""
    number = plan.first_node(fragment)
    for node in fragment.root.walk():
        if index < len(node.columns):
            if isinstance(node.source, PlanSource):
                yield Input(number, node.columns[index])
            else:
                for one in node.source.fragments:
                    yield from _of_row(plan, plan.fragments[one], index)
            return
        index -= len(node.columns)
        number += 1
    for used in _used(fragment.finish.computed[index].sql):
        yield from (one._replace(plain=False) for one in _of_value(plan, fragment, used))


def _of_row(plan: Plan, fragment: Fragment, index: int) -> Iterator[Input]:
    """Yield the source columns of value number `index` of the rows that a fragment sends to its reader."""
    if fragment.group is not None:
        for place in _of_group(fragment.group, index):
            yield from (one._replace(grouped=True) for one in _of_value(plan, fragment, place))
    else:
        yield from _of_value(plan, fragment, index if fragment.picks is None else fragment.picks[index])


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
