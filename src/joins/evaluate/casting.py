"""Casts as Spark's `try_cast` does them: NULL if a value does not fit. Also formats numbers as text.

The text of a double differs between versions of Java beyond 15 digits. Such a text raises UnknownValue."""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Context, Decimal
from fractions import Fraction
from typing import Any

from cdc.model.types import LogicalType
from joins.evaluate.moments import DAY, date_of, date_text, instant_of, moment_of, moment_text
from joins.evaluate.unknown import UnknownValue
from joins.query.value_types import INTEGERS, family

BITS = {"int8": 7, "int16": 15, "int32": 31, "int64": 63}
_WIDE = Context(prec=2000, rounding=ROUND_HALF_UP)
_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_SPECIAL = {"inf": math.inf, "+inf": math.inf, "infinity": math.inf, "+infinity": math.inf, "-inf": -math.inf,
            "-infinity": -math.inf, "nan": math.nan}  # fmt: skip
_TRUE, _FALSE = {"t", "true", "y", "yes", "1"}, {"f", "false", "n", "no", "0"}
_CONTROL = "".join(map(chr, [*range(0x21), 0x7F]))
_LONGEST = 400  # of a number's text, with its exponent: longer ones are not evaluated
Convert = Callable[[Any], Any]


def whole(value: int, type_: LogicalType) -> int | None:
    """Return the integer, or None if it exceeds the range of the type."""
    return value if -(2 ** BITS[type_.kind]) <= value < 2 ** BITS[type_.kind] else None


def decimal(value: Decimal, type_: LogicalType) -> Decimal | None:
    """Round half up to a decimal type. None if the result has too many digits. `uint64` is Spark's DECIMAL(20,0)."""
    precision, scale = (20, 0) if type_.kind == "uint64" else (type_.precision, type_.scale)
    if value.adjusted() > _LONGEST:
        return None
    found = _WIDE.quantize(value, Decimal((0, (1,), -scale))) if value.adjusted() > -_LONGEST else Decimal(0)
    found = _WIDE.quantize(found, Decimal((0, (1,), -scale)))
    if found.copy_abs().scaleb(scale, _WIDE) >= 10**precision:
        return None
    return found if found else Decimal((0, (0,), -scale))


def single(value: float) -> float:
    """Round a double to the nearest 32-bit float."""
    try:
        found: float = struct.unpack(">f", struct.pack(">f", value))[0]
    except OverflowError:
        return math.copysign(math.inf, value)
    return found


def short(value: float, *, float32: bool = False) -> str:
    """Return the shortest text that parses to the number. Raises UnknownValue where versions of Java disagree."""
    if value and not (1e-30 if float32 else 1e-290) < abs(value) < (1e30 if float32 else 1e290):
        raise UnknownValue("the text of a number that is very large or small")
    shorter = (f"{value:.{n}g}" for n in range(1, 10))
    text = next(t for t in shorter if single(float(t)) == value) if float32 else repr(value)
    digits = re.sub(r"[eE].*|[-.]", "", text).strip("0")
    if len(digits) > (7 if float32 else 15):
        raise UnknownValue("the text of a number with very many digits")
    return text


def _double_text(value: float, *, float32: bool) -> str:
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if value == 0:
        return "-0.0" if math.copysign(1, value) < 0 else "0.0"
    number = Decimal(short(value, float32=float32)).normalize()
    if 1e-3 <= abs(value) < 1e7:
        text = f"{number:f}"
        return text if "." in text else f"{text}.0"
    sign, digits, _ = number.as_tuple()
    if len(digits) > (5 if float32 else 12):
        raise UnknownValue("the text of a very large or small number")
    tail = "".join(map(str, digits[1:])) or "0"
    return f"{'-' * sign}{digits[0]}.{tail}E{number.adjusted()}"


def _number(text: str) -> Decimal | None:
    """Parse a number in plain notation. None for other text. Raises UnknownValue for digits that only Java accepts."""
    if not _NUMBER.fullmatch(text):
        if any(c.isdigit() and not c.isascii() for c in text):
            raise UnknownValue(f"digits of another script: {text!r}")
        return None
    if abs(int(text.lower().partition("e")[2] or 0)) > _LONGEST or len(text) > _LONGEST:
        raise UnknownValue("the text of a number that is very long")
    return Decimal(text)


def _text_to_integer(to: LogicalType) -> Convert:
    def convert(text: str) -> int | None:
        found = re.fullmatch(r"[+-]?[0-9]+", text.strip(_CONTROL))
        return None if found is None else whole(int(found[0]), to)

    return convert


def _text_to_decimal(to: LogicalType) -> Convert:
    def convert(text: str) -> Decimal | None:
        number = _number(text.strip("".join(map(chr, range(0x21)))))
        if number is None or (number and number.adjusted() >= 38):
            return None
        return decimal(number, to)

    return convert


def _text_to_double(to: LogicalType) -> Convert:
    def convert(text: str) -> float | None:
        bare = text.strip("".join(map(chr, range(0x21))))
        if bare.lower() in _SPECIAL:
            return _SPECIAL[bare.lower()]
        if re.search(r"0[xX]|[0-9.][dDfF]$", bare):
            raise UnknownValue(f"text as a number: {text!r}")
        if _number(bare) is None:
            return None
        value = float(bare)
        if to.kind == "float64":
            return value
        near = single(value)
        if math.isfinite(near) and near != value:  # rounded twice: known only if rounding once gives the same
            exact, half = Fraction(Decimal(bare)), Fraction(value)
            if exact != half and abs(half - Fraction(near)) * 2**25 > abs(Fraction(near)):
                raise UnknownValue(f"text as a float: {text!r}")
        return near

    return convert


def _text_to_bool(text: str) -> bool | None:
    word = text.strip(_CONTROL).lower()
    return True if word in _TRUE else False if word in _FALSE else None


def _double_to_integer(to: LogicalType) -> Convert:
    highest = int(2 ** BITS[to.kind]) - 1
    lowest = -highest - 1

    def convert(value: float) -> int | None:
        if not math.isfinite(value):
            return None
        if math.floor(value) <= float(highest) and math.ceil(value) >= float(lowest):
            return min(highest, max(lowest, int(value)))
        return None

    return convert


def _decimal_to_integer(of: LogicalType, to: LogicalType) -> Convert:
    """Return Spark's cast of a decimal to an integer type, which truncates.

    If the decimal may exceed a long, Spark casts to INT or smaller through a double."""
    by_double: Callable[[float], int | None] = _double_to_integer(to)

    def convert(value: Decimal) -> int | None:
        cut: int | None = whole(int(value), to)
        if to.kind == "int64":
            return cut
        rounded = by_double(float(value))
        if of.precision <= 18 and cut != rounded:
            raise UnknownValue("the integer part of a decimal that is very near to the next integer")
        found: int | None = cut if of.precision <= 18 else rounded
        return found

    return convert


def _double_to_decimal(of: LogicalType, to: LogicalType) -> Convert:
    scale = 0 if to.kind == "uint64" else to.scale

    def convert(value: float) -> Decimal | None:
        if not math.isfinite(value):
            return None
        number = Decimal(repr(value))
        if len(number.as_tuple().digits) > 15 and int(number.as_tuple().exponent) + 2 >= -scale:
            raise UnknownValue("the digits of a number that has very many")
        return decimal(number, to)

    return convert


def converter(of: LogicalType, to: LogicalType) -> Convert:
    """Return the cast from type `of` to type `to`, for values that are not NULL. Raises UnknownValue for an unknown
    cast."""
    if of == to or {of.kind, to.kind} <= {"datetime", "timestamp"} or {of.kind, to.kind} <= {"string", "json", "time"}:
        return lambda value: value
    match family(of), family(to):
        case "null", _:
            return lambda value: value
        case _, "text":
            return _to_text(of)
        case "text", "bool":
            return _text_to_bool
        case "text", "number":
            if to.kind in INTEGERS:
                return _text_to_integer(to)
            return _text_to_double(to) if to.kind.startswith("float") else _text_to_decimal(to)
        case "text", "date":
            return date_of
        case "text", "moment":
            return instant_of if to.kind == "timestamp" else moment_of
        case "date", "moment":
            return lambda value: value * DAY
        case "moment", "date":
            return lambda value: value // DAY
        case "number", "bool":
            return lambda value: value != 0
        case "bool", "number":
            return _from_bool(to)
        case "number", "number":
            return _to_number(of, to)
    raise UnknownValue(f"a cast of {of} to {to}")


def _to_text(of: LogicalType) -> Convert:
    match family(of):
        case "bool":
            return lambda value: "true" if value else "false"
        case "date":
            return date_text
        case "moment":
            return moment_text
        case "number":
            if of.kind.startswith("float"):
                return lambda value: _double_text(value, float32=of.kind == "float32")
            return str if of.kind in INTEGERS else lambda value: f"{value:f}"
    raise UnknownValue(f"a cast of {of} to text")


def _from_bool(to: LogicalType) -> Convert:
    if to.kind in INTEGERS:
        return int
    return float if to.kind.startswith("float") else lambda value: decimal(Decimal(int(value)), to)


def _to_number(of: LogicalType, to: LogicalType) -> Convert:
    floating, exact = of.kind.startswith("float"), to.kind in ("decimal", "uint64")
    if to.kind in INTEGERS:
        if floating:
            return _double_to_integer(to)
        return _decimal_to_integer(of, to) if of.kind == "decimal" else lambda value: whole(int(value), to)
    if exact:
        return _double_to_decimal(of, to) if floating else lambda value: decimal(Decimal(value), to)
    if to.kind == "float64":
        return float
    if floating:
        return single
    return _near


def _near(value: int | Decimal) -> float:
    """Return the 32-bit float nearest to an exact number.

    Raises UnknownValue if rounding first to a double could give another float."""
    wide = float(value)
    found = single(wide)
    if Fraction(value) != Fraction(wide) and found != wide:
        raise UnknownValue("a float of a number that has very many digits")
    return found
