"""Prepared expressions: the Python function of an expression with its type, and helpers to combine several."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from cdc.model.types import LogicalType
from joins.evaluate.unknown import UnknownValue
from joins.query.value_types import INTEGERS, NULL, common, family

Values = Sequence[Any]


Evaluate = Callable[[Values], Any]


@dataclass(frozen=True, slots=True)
class Prepared:
    """The function of an expression and its type. `near`: a double is exact only up to its last digit.

    `digits` is the number of digits of an integer literal. Next to a decimal, Spark chooses the literal's type by
    it."""

    of: Evaluate
    type: LogicalType
    near: bool = False
    digits: int = 0


Prepare = Callable[[Sequence[Prepared]], Prepared]


TINY = 1e-13


def constant(value: Any, type_: LogicalType) -> Prepared:
    return Prepared(lambda _: value, type_)


def exactly(part: Prepared, function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a function of one value. If the value is near, the result must be the same for its neighbouring
    doubles.

    Raises UnknownValue otherwise."""
    if not part.near:
        return function

    def careful(value: Any) -> Any:
        found = function(value)
        if math.isfinite(value) and (function(value * (1 - TINY)) != found or function(value * (1 + TINY)) != found):
            raise UnknownValue("what depends on the last digits of a power or a logarithm")
        return found

    return careful


def unified(parts: Sequence[Prepared]) -> LogicalType:
    """Return the common type of several operands. The compiler has already cast them to it.

    Raises UnknownValue for types of different families, or a conversion that is not known."""
    kinds = {part.type for part in parts} - {NULL}
    if len(kinds) > 1:
        wanted = NULL
        for kind in kinds:
            found = common(wanted, kind)
            # values of these types need no conversion
            if found is None or (family(found) not in ("text", "moment") and found.kind not in INTEGERS):
                raise UnknownValue(f"values of {len(kinds)} types")
            wanted = found
        if len({family(kind) for kind in kinds}) > 1:
            raise UnknownValue(f"values of {len(kinds)} types")
        return wanted
    return next(iter(kinds), NULL)


def ordered(type_: LogicalType) -> Callable[[Any], Any]:
    """Return the sort key that orders values of a type as Spark does."""
    if family(type_) == "text":
        return str.encode
    if type_.kind.startswith("float"):
        return lambda value: (1, 0.0) if math.isnan(value) else (0, value)
    return lambda value: value
