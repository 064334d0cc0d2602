"""Add up numbers without rounding, and convert sums to the type of a result.

Integers are added as integers, decimals and doubles as decimals with the double's exact value. So a sum depends only
on its values, not on their order or on values that were removed."""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import MAX_EMAX, MIN_EMIN, ROUND_HALF_EVEN, Context, Decimal, Inexact, InvalidOperation
from fractions import Fraction
from typing import Any

from cdc.model.types import NOT_FINITE, Canonical, LogicalType, float_of
from joins.query.value_types import family


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """A sum of doubles. `finite` is the sum of the finite values.

    NaN, positive and negative infinities are only counted, so the sum stays right after their removal."""

    finite: Decimal
    nan: int = 0
    infinite: int = 0
    negative: int = 0

    def value(self) -> str:
        """Return the sum's canonical value."""
        if self.nan or (self.infinite and self.negative):
            return "NaN"
        return "Infinity" if self.infinite else "-Infinity"


Exact = int | Decimal | Limit
# a sum of doubles has at most 1,400 digits plus a few for their count; an inexact result would raise
_EXACT = Context(prec=4000, Emax=MAX_EMAX, Emin=MIN_EMIN, traps=[Inexact, InvalidOperation])
_SHORT = [Context(prec=digits, rounding=ROUND_HALF_EVEN) for digits in (15, 16, 17)]
_BITS = {"int8": 7, "int16": 15, "int32": 31, "int64": 63}
_PLAIN = 16  # longest whole double, in digits, that is written without exponent: longer texts may not be exact


def summed(type_: LogicalType) -> bool:
    """Return whether values of a type can be summed."""
    return family(type_) == "number"


def exact(value: Canonical, type_: LogicalType) -> Exact:
    """Convert a number that is not NULL to the exact form in which it is added."""
    if type_.kind == "decimal":
        return Decimal(str(value))
    number: Any = value
    if number in NOT_FINITE and isinstance(number, str):
        counts = {"NaN": "nan", "Infinity": "infinite", "-Infinity": "negative"}
        return Limit(finite=Decimal(0), **{counts[number]: 1})
    return Decimal(float(number)) if type_.kind.startswith("float") else int(number)


def zero(type_: LogicalType) -> Exact:
    """Return the sum of no values."""
    return Decimal(0) if _inexact(type_) else 0


def added(one: Exact, other: Exact, times: int = 1) -> Exact:
    """Return `one + other * times` for two numbers of one type."""
    if isinstance(one, Limit) or isinstance(other, Limit):
        return _limited(one, other, times)
    if isinstance(one, int) and isinstance(other, int):
        return one + other * times
    return _EXACT.fma(Decimal(other), Decimal(times), Decimal(one))


def _limited(one: Exact, other: Exact, times: int) -> Exact:
    left, right = (x if isinstance(x, Limit) else Limit(finite=Decimal(x)) for x in (one, other))
    finite = _EXACT.fma(right.finite, Decimal(times), left.finite)
    found = Limit(
        finite=finite,
        nan=left.nan + right.nan * times,
        infinite=left.infinite + right.infinite * times,
        negative=left.negative + right.negative * times,
    )
    return found if found.nan or found.infinite or found.negative else finite


def dumped(number: Exact) -> str:
    """Serialize a sum as text. `loaded` is the inverse."""
    if isinstance(number, Limit):
        return ";".join((dumped(number.finite), str(number.nan), str(number.infinite), str(number.negative)))
    return str(number) if isinstance(number, int) else str(_EXACT.normalize(number))


def loaded(text: str, type_: LogicalType) -> Exact:
    """Parse the text that `dumped` wrote."""
    if ";" in text:
        finite, *counts = text.split(";")
        nan, infinite, negative = map(int, counts)
        return Limit(finite=Decimal(finite), nan=nan, infinite=infinite, negative=negative)
    return Decimal(text) if _inexact(type_) else int(text)


def _inexact(type_: LogicalType) -> bool:
    return type_.kind == "decimal" or type_.kind.startswith("float")


def part_of(number: Exact, count: int, type_: LogicalType) -> bytes | None:
    """Return a sum divided by `count`, as JSON text of a type. None if it does not fit the type."""
    if isinstance(number, Limit):
        return f'"{number.value()}"'.encode()
    return fitting(Fraction(number) / count, type_)


def fitting(number: Fraction, type_: LogicalType) -> bytes | None:
    """Return a number as JSON text of a type. Decimals are rounded half up, whole numbers are truncated towards zero.

    None if the number does not fit the type."""
    if type_.kind == "decimal":
        return decimal_text(number, type_)
    if type_.kind.startswith("float"):
        try:
            return double_text(number.numerator / number.denominator)
        except OverflowError:
            return None
    whole = int(number)
    lowest, above = (0, 2**64) if type_.kind == "uint64" else (-(2 ** _BITS[type_.kind]), 2 ** _BITS[type_.kind])
    return str(whole).encode() if lowest <= whole < above else None


def decimal_text(number: Fraction, type_: LogicalType) -> bytes | None:
    """Return the JSON text of a decimal with all its decimal places. None if it exceeds the precision of its type."""
    top = abs(number.numerator) * 10**type_.scale
    unscaled = (2 * top + number.denominator) // (2 * number.denominator)
    if unscaled >= 10**type_.precision:
        return None
    digits = str(unscaled).rjust(type_.scale + 1, "0")
    sign = "-" if number < 0 and unscaled else ""
    point = len(digits) - type_.scale
    return f'"{sign}{digits[:point]}{"." if type_.scale else ""}{digits[point:]}"'.encode()


def double_text(value: float) -> bytes:
    """Return the JSON text of a double: with the fewest of 15, 16 or 17 digits that give the same double.

    It is written as by `Decimal` and Java's `BigDecimal`, but whole numbers of up to 16 digits have no exponent."""
    if not value:
        return b"0"  # -0.0 included
    if not math.isfinite(value):
        return f'"{float_of(value)}"'.encode()
    there = Decimal(value)
    short = next(text for context in _SHORT if float(text := context.plus(there)) == value).normalize()
    plain = int(short.as_tuple().exponent) > 0 and short.adjusted() < _PLAIN
    return (f"{short:f}" if plain else str(short)).encode()
