"""Compute aggregate functions over the list of a group's values, with the results of the join.

DuckDB's own functions differ: here, sums of doubles are exact before they are rounded, sums of decimals are NULL if
they have too many digits, and lists are sorted by value (`joins.steps`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import orjson

from cdc.model.types import Canonical, LogicalType
from joins.evaluate.stored import to_canonical, to_native
from joins.evaluate.unknown import UnknownValue
from joins.query.group import Bag
from joins.steps.exact import added, exact, part_of, zero
from joins.steps.ordered import order_of
from joins.steps.results import LONGEST

Values = Sequence[Any]  # without NULLs, as expressions read them


def collected(function: str, of: LogicalType, type_: LogicalType) -> Callable[[Values], Any]:
    """Return the aggregate function for values of type `of` and a result of type `type_`.

    Raises UnknownValue if it is not known."""
    match function:
        case "count_distinct":
            return lambda values: len({*_texts(of, values)})
        case "sum" | "avg":
            return lambda values: _sum(of, type_, values, mean=function == "avg")
        case "sum_distinct":
            return lambda values: _sum(of, type_, [*dict(zip(_texts(of, values), values, strict=True)).values()])
        case "min" | "max":
            return lambda values: _extreme(of, values, last=function == "max")
        case "collect_list" | "collect_set":
            return lambda values: _listed(of, values, once=function == "collect_set")
    raise UnknownValue(f"{function} of {of}")


def _texts(of: LogicalType, values: Values) -> list[bytes]:
    return [orjson.dumps(to_canonical(of, value)) for value in values]


def _sum(of: LogicalType, type_: LogicalType, values: Values, *, mean: bool = False) -> Any:
    if not values:
        return None
    total = zero(of)
    for value in values:
        total = added(total, exact(to_canonical(of, value), of))
    text = part_of(total, len(values) if mean else 1, type_)
    return None if text is None else to_native(type_, orjson.loads(text))


def _ordered(of: LogicalType, values: Values) -> list[Canonical]:
    key = order_of(Bag(arguments=(0,), types=(of,), needed=1, descending=(False,)))
    return sorted((to_canonical(of, value) for value in values), key=lambda value: key([value]))


def _extreme(of: LogicalType, values: Values, *, last: bool) -> Any:
    found = _ordered(of, values)
    return to_native(of, found[-1 if last else 0]) if found else None


def _listed(of: LogicalType, values: Values, *, once: bool) -> Any:
    found = _ordered(of, values)
    texts = [orjson.dumps(value) for value in found]
    if once:
        kept = dict(zip(texts, found, strict=True))
        texts, found = [*kept], [*kept.values()]
    if 1 + sum(len(text) + 1 for text in texts) > LONGEST:
        return None
    return [to_native(of, value) for value in found]
