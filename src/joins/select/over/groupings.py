"""Describe the groups of queries whose partitions are ordered (part of stage 4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from joins.query.finish import text_of_expression
from joins.query.group import Bag, Grouping, Top, WindowFunction, Windows
from joins.query.plan import Output
from joins.select.bound import BoundFunction, BoundTop, BoundWindow


def held_by(bound: BoundTop | BoundWindow, names: Sequence[str], wanted: Sequence[str]) -> list[str]:
    """Return the columns of the inner query that a row's tuple has: first those that order it."""
    ordered = [name for name, _ in bound.order]
    read = list[str]()
    if isinstance(bound, BoundTop):
        made = {bound.number}
    else:
        made = {one.name for one in bound.functions}
        read = [name for one in bound.functions for name in (one.argument, one.default) if name is not None]
        read += bound.arguments
    return list(dict.fromkeys([*ordered, *read, *(name for name in (*wanted, *names) if name not in made)]))


def top_grouping(
    bound: BoundTop,
    numbers: tuple[int, int],
    held: Sequence[str],
    outputs: Mapping[str, Output],
    names: Sequence[str],
    wanted: Sequence[str],
) -> Grouping:
    """Return the groups of a query with ROW_NUMBER() and a limit. `numbers` are those of its two steps."""
    places = _places([*bound.partition, *held, bound.number])
    top = Top(
        most=bound.most,
        ordered=len(dict(bound.order)),
        names=tuple(places[name] for name in names),
        values=tuple(places[name] for name in wanted),
    )
    return replace(_grouping(bound, numbers, held, outputs), top=top)


def window_grouping(
    bound: BoundWindow,
    numbers: tuple[int, int],
    held: Sequence[str],
    outputs: Mapping[str, Output],
    names: Sequence[str],
    wanted: Sequence[str],
) -> Grouping:
    """Return the groups of a query with window functions. `numbers` are those of its two steps."""
    places = _places([*bound.partition, *held, *(one.name for one in bound.functions)])
    at = [held.index(name) for name in bound.arguments]
    keeping = bound.keeping
    windows = Windows(
        ordered=bound.ordered,
        functions=tuple(_function(one, held) for one in bound.functions),
        totals=tuple(replace(total, argument=at[total.argument]) for total in keeping.totals),
        bags=tuple(replace(bag, arguments=tuple(at[i] for i in bag.arguments)) for bag in keeping.bags),
        results=tuple(keeping.results),
        names=tuple(places[name] for name in names),
        values=tuple(places[name] for name in wanted),
    )
    return replace(_grouping(bound, numbers, held, outputs), windows=windows)


def _function(one: BoundFunction, held: Sequence[str]) -> WindowFunction:
    call = one.call
    return WindowFunction(
        kind=call.kind,
        text=text_of_expression(call.call),
        number=one.result if call.kind == "aggregate" else call.number,
        argument=-1 if one.argument is None else held.index(one.argument),
        default=-1 if one.default is None else held.index(one.default),
        skips=call.skips,
        frame=call.frame,
    )


def _places(names: Sequence[str]) -> dict[str, int]:
    """Return the first index of each name."""
    return {name: i for i, name in reversed([*enumerate(names)])}


def _grouping(
    bound: BoundTop | BoundWindow, numbers: tuple[int, int], held: Sequence[str], outputs: Mapping[str, Output]
) -> Grouping:
    """Return groups by PARTITION BY whose only bag has the rows in order."""
    turned = dict(reversed(bound.order))  # a repeated value decides nothing
    keys, arguments = ([outputs[name] for name in some] for some in (bound.partition, held))
    bag = Bag(
        arguments=tuple(range(len(held))),
        types=tuple(output.type for output in arguments),
        needed=0,
        descending=tuple(turned.get(name, False) for name in held),
    )
    return Grouping(
        change_detector=numbers[0],
        number=numbers[1],
        keys=tuple(output.index for output in keys),
        key_types=tuple(output.type for output in keys),
        arguments=tuple(output.index for output in arguments),
        totals=(),
        bags=(bag,),
        results=(),
        always=None,
    )
