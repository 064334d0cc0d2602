"""Sums that lose nothing, and what they read as in the type of a result.

Integers are summed as such, decimals and doubles as decimals: of a double the value that it has to the last bit. So a
sum depends on what is in it alone, not on the order in which it came and what has left again.
"""

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
    """A sum of doubles, some of them no finite numbers: these are counted, so it is `finite` again without them."""

    finite: Decimal
    nan: int = 0
    infinite: int = 0
    negative: int = 0

    def value(self) -> str:
        """The sum's canonical value."""
        if self.nan or (self.infinite and self.negative):
            return "NaN"
        return "Infinity" if self.infinite else "-Infinity"


Exact = int | Decimal | Limit
# a sum of doubles has 1,400 digits at most and a few for their number; a digit that is missed would raise
_EXACT = Context(prec=4000, Emax=MAX_EMAX, Emin=MIN_EMIN, traps=[Inexact, InvalidOperation])
_SHORT = [Context(prec=digits, rounding=ROUND_HALF_EVEN) for digits in (15, 16, 17)]
_BITS = {"int8": 7, "int16": 15, "int32": 31, "int64": 63}
_PLAIN = 16  # digits of whole doubles that are written out: longer ones need not be the number that they read as


def summed(type_: LogicalType) -> bool:
    """Whether values of a type have a sum."""
    return family(type_) == "number"


def exact(value: Canonical, type_: LogicalType) -> Exact:
    """A number that is there, exactly."""
    if type_.kind == "decimal":
        return Decimal(str(value))
    number: Any = value
    if number in NOT_FINITE and isinstance(number, str):
        counts = {"NaN": "nan", "Infinity": "infinite", "-Infinity": "negative"}
        return Limit(finite=Decimal(0), **{counts[number]: 1})
    return Decimal(float(number)) if type_.kind.startswith("float") else int(number)


def zero(type_: LogicalType) -> Exact:
    """The sum of no values."""
    return Decimal(0) if _inexact(type_) else 0


def added(one: Exact, other: Exact, times: int = 1) -> Exact:
    """`one + other * times`, of two numbers of one type."""
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
    """As it is stored; inverse of `loaded`."""
    if isinstance(number, Limit):
        return ";".join((dumped(number.finite), str(number.nan), str(number.infinite), str(number.negative)))
    return str(number) if isinstance(number, int) else str(_EXACT.normalize(number))


def loaded(text: str, type_: LogicalType) -> Exact:
    """Read what `dumped` wrote."""
    if ";" in text:
        finite, *counts = text.split(";")
        nan, infinite, negative = map(int, counts)
        return Limit(finite=Decimal(finite), nan=nan, infinite=infinite, negative=negative)
    return Decimal(text) if _inexact(type_) else int(text)


def _inexact(type_: LogicalType) -> bool:
    return type_.kind == "decimal" or type_.kind.startswith("float")


def part_of(number: Exact, count: int, type_: LogicalType) -> bytes | None:
    """JSON text of the `count`-th part of a sum as a value of `type_`; None if it does not fit."""
    if isinstance(number, Limit):
        return f'"{number.value()}"'.encode()
    return fitting(Fraction(number) / count, type_)


def fitting(number: Fraction, type_: LogicalType) -> bytes | None:
    """JSON text of a number as a value of `type_`, a decimal rounded half up; None if it does not fit."""
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
    """A decimal's JSON text with all digits of its scale; None if it has more than its type."""
    top = abs(number.numerator) * 10**type_.scale
    unscaled = (2 * top + number.denominator) // (2 * number.denominator)
    if unscaled >= 10**type_.precision:
        return None
    digits = str(unscaled).rjust(type_.scale + 1, "0")
    sign = "-" if number < 0 and unscaled else ""
    point = len(digits) - type_.scale
    return f'"{sign}{digits[:point]}{"." if type_.scale else ""}{digits[point:]}"'.encode()


def double_text(value: float) -> bytes:
    """A double's JSON text: the fewest of 15, 16, 17 digits that read back as it.

    The notation is that of `Decimal` (and Java's `BigDecimal`), but whole numbers of up to 16 digits have no exponent.
    """
    if not value:
        return b"0"  # also of -0.0
    if not math.isfinite(value):
        return f'"{float_of(value)}"'.encode()
    there = Decimal(value)
    short = next(text for context in _SHORT if float(text := context.plus(there)) == value).normalize()
    plain = int(short.as_tuple().exponent) > 0 and short.adjusted() < _PLAIN
    return (f"{short:f}" if plain else str(short)).encode()
