"""Compute aggregate functions over the list of a group's values, with the results of the join.

DuckDB's own functions differ: here, sums of doubles are exact before they are rounded, sums of decimals are NULL if
they have too many digits, and lists are sorted by value (`joins.steps`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import orjson

from cdc.model.types import LogicalType
from joins.evaluate.stored import to_canonical, to_native
from joins.query.aggregate_functions import BY_NAME
from joins.query.group import Bag, Result
from joins.steps.bags import Tuples
from joins.steps.exact import added, exact, summed, zero
from joins.steps.ordered import order_of
from joins.steps.results import Contents, text_of_result

Values = Sequence[Any]  # without NULLs, as expressions read them


def collected(
    function: str, of: LogicalType, type_: LogicalType, given: tuple[str, ...] = ()
) -> Callable[[Values], Any]:
    """Return the function of an aggregate of values of type `of`, with the specification's code."""
    bag = BY_NAME[function].reads == "bag"
    result = Result(function=function, of=0, type=type_, text=function, given=given)

    def computed(values: Values) -> Any:
        text = text_of_result(result, _contents(of, values, bag=bag))
        return None if text is None else to_native(type_, orjson.loads(text))

    return computed


def _contents(of: LogicalType, values: Values, *, bag: bool) -> Contents:
    """Return what a group of these values holds."""
    found = [to_canonical(of, value) for value in values]
    if not bag:
        total = zero(of)
        for value in found if summed(of) else []:
            total = added(total, exact(value, of))
        return Contents(rows=len(found), counts=[len(found)], sums=[total], bags=[])
    described = Bag(arguments=(0,), types=(of,), needed=1, descending=(False,))
    tuples, order = Tuples(described), order_of(described)
    # in order, each tuple is appended: the time does not grow with the square of the group's size
    tuples.change(dict(sorted(Counter((value,) for value in found).items(), key=lambda entry: order([*entry[0]]))))
    return Contents(rows=len(found), counts=[], sums=[], bags=[tuples])
