"""Comparisons, AND, OR, NOT, IN and CASE as in Spark: with three-valued logic. NaN equals NaN and is the greatest."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from joins.evaluate import texts
from joins.evaluate.prepared import TINY, Prepare, Prepared, Values, ordered, unified
from joins.evaluate.unknown import UnknownValue
from joins.query.value_types import BOOL

TESTS: dict[str, Callable[[Any, Any], bool]] = {
    "=": lambda a, b: a == b, "<>": lambda a, b: a != b, "<": lambda a, b: a < b, "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b, ">=": lambda a, b: a >= b,
}  # fmt: skip


def comparison(sign: str) -> Prepare:
    def prepare(parts: Sequence[Prepared]) -> Prepared:
        (a, b), type_ = (parts[0].of, parts[1].of), unified(parts)
        test, key, near = TESTS[sign], ordered(type_), parts[0].near or parts[1].near

        def compare(values: Values) -> Any:
            x, y = a(values), b(values)
            if x is None or y is None:
                return None
            if near and math.isfinite(x) and math.isfinite(y) and math.isclose(x, y, rel_tol=TINY):
                raise UnknownValue("a comparison of a power or a logarithm with nearly its value")
            return test(key(x), key(y))

        return Prepared(compare, BOOL)

    return prepare


def same(parts: Sequence[Prepared]) -> Prepared:
    equal = comparison("=")(parts).of
    a, b = parts[0].of, parts[1].of

    def same(values: Values) -> bool:
        x, y = a(values), b(values)
        if x is None or y is None:
            return x is None and y is None
        return bool(equal(values))

    return Prepared(same, BOOL)


def both(parts: Sequence[Prepared]) -> Prepared:
    a, b = parts[0].of, parts[1].of

    def both(values: Values) -> Any:
        x = a(values)
        if x is False:
            return False
        y = b(values)
        return False if y is False else None if x is None or y is None else True

    return Prepared(both, BOOL)


def either(parts: Sequence[Prepared]) -> Prepared:
    a, b = parts[0].of, parts[1].of

    def either(values: Values) -> Any:
        x = a(values)
        if x is True:
            return True
        y = b(values)
        return True if y is True else None if x is None or y is None else False

    return Prepared(either, BOOL)


def negated(parts: Sequence[Prepared]) -> Prepared:
    inner = parts[0].of

    def negated(values: Values) -> Any:
        value = inner(values)
        return None if value is None else not value

    return Prepared(negated, BOOL)


def null(wanted: bool) -> Prepare:
    def prepare(parts: Sequence[Prepared]) -> Prepared:
        inner = parts[0].of
        return Prepared(lambda values: (inner(values) is None) is wanted, BOOL)

    return prepare


def among(parts: Sequence[Prepared]) -> Prepared:
    if any(part.near for part in parts):
        raise UnknownValue("IN of a power or a logarithm")
    key, of, others = ordered(unified(parts)), parts[0].of, [part.of for part in parts[1:]]

    def among(values: Values) -> Any:
        value = of(values)
        if value is None:
            return None
        found, unknown = key(value), False
        for other in others:
            x = other(values)
            if x is None:
                unknown = True
            elif key(x) == found:
                return True
        return None if unknown else False

    return Prepared(among, BOOL)


def like(parts: Sequence[Prepared]) -> Prepared:
    pattern, of = texts.like(str(parts[1].of(()))), parts[0].of

    def like(values: Values) -> Any:
        value = of(values)
        return None if value is None else pattern.fullmatch(value) is not None

    return Prepared(like, BOOL)


def coalesce(parts: Sequence[Prepared]) -> Prepared:
    each = [part.of for part in parts]

    def first(values: Values) -> Any:
        return next((value for of in each if (value := of(values)) is not None), None)

    return Prepared(first, unified(parts), any(part.near for part in parts))


def extreme(sign: int) -> Prepare:
    def prepare(parts: Sequence[Prepared]) -> Prepared:
        type_ = unified(parts)
        if any(part.near for part in parts):
            raise UnknownValue("greatest or least of a power or a logarithm")
        key, each = ordered(type_), [part.of for part in parts]
        best = max if sign > 0 else min

        def extreme(values: Values) -> Any:
            there = [value for of in each if (value := of(values)) is not None]
            return best(there, key=key) if there else None

        return Prepared(extreme, type_)

    return prepare


def case(parts: Sequence[Prepared]) -> Prepared:
    branches = [(parts[i].of, parts[i + 1]) for i in range(0, len(parts) - 1, 2)]
    otherwise = parts[-1]
    type_ = unified([then for _, then in branches] + [otherwise])
    found = [(condition, then.of) for condition, then in branches]
    last = otherwise.of

    def case(values: Values) -> Any:
        for condition, then in found:
            if condition(values) is True:
                return then(values)
        return last(values)

    return Prepared(case, type_, any(part.near for part in parts))
