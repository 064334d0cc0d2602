"""Arithmetic as in Spark: NULL if a result exceeds its type's range; decimals are rounded half up to the type's
scale."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from decimal import ROUND_FLOOR, ROUND_HALF_UP, Context, Decimal, DivisionImpossible, InvalidOperation
from functools import partial
from typing import Any

from cdc.model.types import LogicalType
from joins.evaluate.casting import converter, decimal, short, single, whole
from joins.evaluate.prepared import Evaluate, Prepare, Prepared, Values, constant, exactly
from joins.evaluate.unknown import UnknownValue
from joins.query.value_types import BOOL, FLOAT64, INT64, INTEGERS, NULL, arithmetic, bounded, common

_EXACT = Context(prec=39, rounding=ROUND_HALF_UP)


_WIDE = Context(prec=400, rounding=ROUND_HALF_UP)


_DIVIDED = 39  # decimal places of a quotient that Spark keeps before it applies the result type


def _wide(value: Any) -> Decimal:
    return value if isinstance(value, Decimal) else Decimal(value)


def _exact_add(a: Decimal, b: Decimal) -> Decimal:
    return _WIDE.add(a, b)


def _exact_subtract(a: Decimal, b: Decimal) -> Decimal:
    return _WIDE.subtract(a, b)


def _exact_multiply(a: Decimal, b: Decimal) -> Decimal:
    return _EXACT.multiply(a, b)


def _exact_divide(a: Decimal, b: Decimal) -> Decimal | None:
    if not b:
        return None
    top = int(a.scaleb(_DIVIDED + 40, _WIDE)), int(b.scaleb(40, _WIDE))
    whole_, rest = divmod(abs(top[0]), abs(top[1]))
    whole_ += 2 * rest >= abs(top[1])
    sign = -1 if (a < 0) != (b < 0) else 1
    return _WIDE.scaleb(Decimal(sign * whole_), -_DIVIDED)


def _exact_remainder(a: Decimal, b: Decimal) -> Decimal | None:
    if not b:
        return None
    try:
        return Context(prec=39).remainder(a, b)
    except (InvalidOperation, DivisionImpossible):
        raise UnknownValue("the remainder of a division of numbers of very different size") from None


def _float_divide(a: float, b: float) -> float | None:
    return None if b == 0 else a / b


def _float_remainder(a: float, b: float) -> float | None:
    if b == 0:
        return None
    if not math.isfinite(a) or math.isnan(b):
        return math.nan
    return math.fmod(a, b)


def _whole_remainder(a: int, b: int) -> int | None:
    return None if b == 0 else int(math.copysign(1, a)) * (abs(a) % abs(b))


ON_DECIMALS: dict[str, Callable[[Any, Any], Any]] = {
    "try_add": _exact_add, "try_subtract": _exact_subtract, "try_multiply": _exact_multiply,
    "try_divide": _exact_divide, "try_mod": _exact_remainder,
}  # fmt: skip


_ON_FLOATS: dict[str, Callable[[Any, Any], Any]] = {
    "try_add": lambda a, b: a + b, "try_subtract": lambda a, b: a - b, "try_multiply": lambda a, b: a * b,
    "try_divide": _float_divide, "try_mod": _float_remainder,
}  # fmt: skip


_ON_INTEGERS: dict[str, Callable[[Any, Any], Any]] = {**_ON_FLOATS, "try_mod": _whole_remainder}


def arithmetic_of(name: str) -> Prepare:
    def prepare(parts: Sequence[Prepared]) -> Prepared:
        a, b = parts
        kinds = (a.type.kind, b.type.kind)
        near = a.near or b.near
        if near and name == "try_mod":
            raise UnknownValue("a remainder of a power or a logarithm")
        if NULL in (a.type, b.type):
            return constant(None, NULL)
        if "float64" in kinds or ("float32" in kinds and (kinds[0] != kinds[1] or name == "try_divide")):
            to_double = [converter(part.type, FLOAT64) for part in parts]
            return _binary(a.of, b.of, to_double, _ON_FLOATS[name], lambda value: value, FLOAT64, near=near)
        if "float32" in kinds:
            as_is = [lambda value: value] * 2
            return _binary(a.of, b.of, as_is, _ON_FLOATS[name], single, a.type, near=near)
        if all(kind in INTEGERS for kind in kinds):
            if name == "try_divide":
                return _binary(a.of, b.of, [float, float], _float_divide, lambda value: value, FLOAT64)
            type_ = common(a.type, b.type)
            assert type_ is not None  # integers have one
            return _binary(
                a.of, b.of, [lambda value: value] * 2, _ON_INTEGERS[name], lambda value: whole(value, type_), type_
            )
        found = arithmetic(name, *(_as_decimal(part) for part in parts))
        assert found is not None  # decimals have a result
        return _binary(a.of, b.of, [_wide, _wide], ON_DECIMALS[name], lambda value: decimal(value, found), found)

    return prepare


def _as_decimal(part: Prepared) -> LogicalType:
    """Return the decimal type to which Spark converts an integer operand next to a decimal."""
    if part.type.kind == "decimal":
        return part.type
    precision = part.digits or INTEGERS.get(part.type.kind) or 20
    return LogicalType(kind="decimal", precision=precision)


def _binary(
    a: Evaluate,
    b: Evaluate,
    converts: Sequence[Callable[[Any], Any]],
    function: Callable[[Any, Any], Any],
    fit: Callable[[Any], Any],
    type_: LogicalType,
    *,
    near: bool = False,
) -> Prepared:
    first, second = converts

    def compute(values: Values) -> Any:
        x, y = a(values), b(values)
        if x is None or y is None:
            return None
        found = function(first(x), second(y))
        return None if found is None else fit(found)

    return Prepared(compute, type_, near)


def minus(parts: Sequence[Prepared]) -> Prepared:
    of = parts[0].of

    def negative(values: Values) -> Any:
        value = of(values)
        if value is None or value == 0:
            return value if not isinstance(value, float) else -value
        return value.copy_negate() if isinstance(value, Decimal) else -value

    return Prepared(negative, parts[0].type, parts[0].near, parts[0].digits)


def plain(function: Callable[[Any, Any], Any]) -> Prepare:
    """Return an operator for numbers far from any limit: those of `joins.query.functions.windows` and of TIME."""

    def prepare(parts: Sequence[Prepared]) -> Prepared:
        kinds = [part.type.kind for part in parts]
        if all(kind in INTEGERS for kind in kinds):
            return _binary(parts[0].of, parts[1].of, [int, int], function, lambda value: value, INT64)
        wide = LogicalType(kind="decimal", precision=400, scale=0)
        return _binary(parts[0].of, parts[1].of, [_wide, _wide], function, lambda value: value, wide)

    return prepare


def real(function: Callable[..., float | None], *, near: bool) -> Prepare:
    """Return a function of doubles. NaN and infinity become NULL.

    `near`: results may differ from Spark's in the last digit."""

    def prepare(parts: Sequence[Prepared]) -> Prepared:
        each = [part.of for part in parts]

        def call(values: Values) -> Any:
            found = [of(values) for of in each]
            if None in found:
                return None
            try:
                return function(*found)
            except OverflowError:
                return math.inf
            except (ValueError, ZeroDivisionError):
                return math.nan

        return Prepared(call, FLOAT64, near or any(part.near for part in parts))

    return prepare


def log(function: Callable[[float], float]) -> Callable[[float], float | None]:
    return lambda value: value if math.isnan(value) else None if value <= 0 else function(value)


def absolute(parts: Sequence[Prepared]) -> Prepared:
    of = parts[0].of

    def absolute(values: Values) -> Any:
        value = of(values)
        return None if value is None else value.copy_abs() if isinstance(value, Decimal) else abs(value)

    return Prepared(absolute, parts[0].type, parts[0].near)


def isnan(parts: Sequence[Prepared]) -> Prepared:
    of = parts[0].of

    def isnan(values: Values) -> bool:
        value = of(values)
        return value is not None and math.isnan(value)

    return Prepared(isnan, BOOL)


def round_(parts: Sequence[Prepared]) -> Prepared:
    of, type_, digits = parts[0].of, parts[0].type, int(parts[1].of(()))
    if type_.kind in ("decimal", "uint64"):
        scale = min(digits, type_.scale)
        wanted = bounded((type_.precision or 20) - type_.scale + 1 + scale, scale)
        function: Callable[[Any], Any] = partial(decimal, type_=wanted)
    else:
        wanted = type_
        function = exactly(parts[0], _rounded(digits, float32=type_.kind == "float32"))

    def rounded(values: Values) -> Any:
        value = of(values)
        return None if value is None else function(value)

    return Prepared(rounded, wanted)


def _rounded(digits: int, *, float32: bool) -> Callable[[float], float]:
    def rounded(value: float) -> float:
        if not math.isfinite(value):
            return value
        number = Decimal(short(value, float32=float32)) if float32 else Decimal(repr(value))
        if int(number.as_tuple().exponent) >= -digits:
            return value
        found = float(_WIDE.quantize(number, Decimal((0, (1,), -digits))))
        return single(found) if float32 else found

    return rounded


def to_whole(name: str) -> Prepare:
    up = name == "ceil"

    def prepare(parts: Sequence[Prepared]) -> Prepared:
        of, type_ = parts[0].of, parts[0].type
        if type_.kind in ("decimal", "uint64"):
            wanted = bounded((type_.precision or 20) - type_.scale + 1, 0)
            rounding = "ROUND_CEILING" if up else ROUND_FLOOR
            function: Callable[[Any], Any] = partial(_cut, rounding=rounding)
        elif type_.kind.startswith("float"):
            wanted = INT64
            function = exactly(parts[0], _whole_double(math.ceil if up else math.floor))
        else:
            raise UnknownValue(f"{name} of {type_}")

        def to_whole(values: Values) -> Any:
            value = of(values)
            return None if value is None else function(value)

        return Prepared(to_whole, wanted)

    return prepare


def _cut(value: Decimal, rounding: str) -> Decimal:
    return value.quantize(Decimal(1), rounding, _WIDE) or Decimal(0)


def _whole_double(function: Callable[[float], int]) -> Callable[[float], int]:
    def convert(value: float) -> int:
        if math.isnan(value):
            return 0
        if math.isinf(value):
            return 2**63 - 1 if value > 0 else -(2**63)
        return max(-(2**63), min(2**63 - 1, function(value)))

    return convert
