"""Convert values from Kafka to the types that a plan was compiled with, even if the column had another type then.

ALTER TABLE changes a table's rows without logging them. So a value published as `2.99` or `5` may now belong to a
decimal(8,3) or text column. Such a value is converted as MySQL did, if the conversion is exact. Otherwise `Unfit` is
raised. `kernel/log/Fit.java` does the same with JSON tokens."""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from functools import partial

from cdc.model.geometry import NoGeometry, ewkt_of
from cdc.model.geometry import number as coordinate
from cdc.model.types import NOT_FINITE, Canonical, LogicalType

Fit = Callable[[object], Canonical]
_BITS = {"int8": 7, "int16": 15, "int32": 31, "int64": 63}
_NUMBER = re.compile(r"-?[0-9]{1,100}(\.[0-9]{1,100})?")
_PAIR = re.compile(r"\((-?[0-9]+(?:\.[0-9]+)?(?:e[-+][0-9]+)?),(-?[0-9]+(?:\.[0-9]+)?(?:e[-+][0-9]+)?)\)")
_DATE = re.compile("[0-9]{4}-[0-9]{2}-[0-9]{2}Z")
_CANONICAL = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{0,8}[1-9])?Z")
_MOMENT = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2})(?:[T ]([0-9]{2}:[0-9]{2}:[0-9]{2})(?:\.([0-9]{1,9}))?)?Z?")
_DIGITS = 15  # of a float: every writer gives the same 15 digits


class Unfit(ValueError):
    """A value that cannot be converted to a type without loss."""


def fit_of(type_: LogicalType) -> Fit:
    """Return a function that converts values to the canonical values of `type_` (see `cdc.model.types`).

    The function returns None for NULL, and raises Unfit for values that it cannot convert without loss."""
    match type_.kind:
        case "int8" | "int16" | "int32" | "int64" | "uint64":
            most = 2**64 - 1 if type_.kind == "uint64" else 2 ** _BITS[type_.kind] - 1
            return _integers(0 if type_.kind == "uint64" else -most - 1, most)
        case "decimal":
            return _formed(_decimal_form(type_.precision, type_.scale), partial(_decimal, type_.precision, type_.scale))
        case "date":
            return _formed(_DATE, _date)
        case "datetime" | "timestamp":
            return _formed(_CANONICAL, _moment)
        case "float32" | "float64":
            return _float
        case "bool":
            return _bool
        case "string" | "json":
            return _text
        case "point" | "geometry":
            return _geometry
        case "list":
            return _floats
    return _as_it_is  # binary, time: no other value becomes one


def _integers(least: int, most: int) -> Fit:
    def fit(value: object) -> Canonical:
        if type(value) is int and least <= value <= most:
            return value
        return None if value is None else _integer(value, least, most)

    return fit


def _formed(form: re.Pattern[str], convert: Fit) -> Fit:
    """Return a function that keeps a text that matches `form`, and passes other values to `convert`."""
    full = form.fullmatch

    def fit(value: object) -> Canonical:
        if type(value) is str and full(value):
            return value
        return None if value is None else convert(value)

    return fit


def _decimal_form(precision: int, scale: int) -> re.Pattern[str]:
    whole = precision - scale
    digits = f"(0|[1-9][0-9]{{0,{whole - 1}}})" if whole else "0"
    return re.compile(f"-?{digits}{f'[.][0-9]{{{scale}}}' if scale else ''}")


def _integer(value: object, least: int, most: int) -> int:
    number: int | None
    if isinstance(value, int):
        number = int(value)
    else:
        exact = _exact(value)
        number = None if exact is None else _scaled(exact, 0)
    if number is None or not least <= number <= most:
        raise Unfit
    return number


def _decimal(precision: int, scale: int, value: object) -> str:
    exact = _exact(value)
    unscaled = None if exact is None else _scaled(exact, scale)
    if unscaled is None or abs(unscaled) >= 10**precision:
        raise Unfit
    sign, digits = "-" if unscaled < 0 else "", str(abs(unscaled)).rjust(scale + 1, "0")
    return f"{sign}{digits[:-scale]}.{digits[-scale:]}" if scale else sign + digits


def _float(value: object) -> Canonical:
    if value is None or (isinstance(value, int | float) and not isinstance(value, bool)):
        return value
    if value in NOT_FINITE and isinstance(value, str):
        return value
    if not isinstance(value, str) or not _NUMBER.fullmatch(value):
        raise Unfit
    return float(value)


def _bool(value: object) -> Canonical:
    if value is None or isinstance(value, bool):
        return value
    if value in (0, 1) and isinstance(value, int):
        return value == 1
    raise Unfit


def _date(value: object) -> Canonical:
    found = _MOMENT.fullmatch(value) if isinstance(value, str) else None
    if found is None or (found[2] or "00:00:00") != "00:00:00" or (found[3] or "").strip("0"):
        raise Unfit
    return f"{found[1]}Z"


def _moment(value: object) -> Canonical:
    found = _MOMENT.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        raise Unfit
    fraction = (found[3] or "").rstrip("0")
    return f"{found[1]}T{found[2] or '00:00:00'}{'.' if fraction else ''}{fraction}Z"


def _text(value: object) -> Canonical:
    if type(value) is str or value is None:
        return value
    exact = None if isinstance(value, bool) else _exact(value)
    if exact is None:
        raise Unfit
    if isinstance(value, float) and value and not 1e-5 <= abs(value) < 1e15:  # MySQL writes an exponent
        raise Unfit
    return _plain(exact)


def _geometry(value: object) -> Canonical:
    if value is None:
        return None
    if isinstance(value, str) and (found := _PAIR.fullmatch(value)):  # PostgreSQL's point in older records
        return f"POINT({coordinate(float(found[1]))} {coordinate(float(found[2]))})"
    if not isinstance(value, dict):
        raise Unfit
    try:
        return ewkt_of(value)
    except NoGeometry as error:
        raise Unfit from error


def _floats(value: object) -> Canonical:
    """Convert a list of numbers (a vector). No other list type occurs in source columns."""
    if value is None:
        return None
    if not isinstance(value, list) or not all(isinstance(n, int | float) and not isinstance(n, bool) for n in value):
        raise Unfit
    return value


def _as_it_is(value: object) -> Canonical:
    if value is None or isinstance(value, str):
        return value
    raise Unfit


def _exact(value: object) -> Decimal | None:
    """Return a number with exactly the digits that were written. None if it is no number, or a float with inexact
    digits."""
    if isinstance(value, int):
        return Decimal(int(value))
    if isinstance(value, float):
        number = Decimal(repr(value))
        digits = str(abs(int("".join(map(str, number.as_tuple().digits))))).rstrip("0")
        return number if len(digits) <= _DIGITS else None
    return Decimal(value) if isinstance(value, str) and _NUMBER.fullmatch(value) else None


def _scaled(number: Decimal, scale: int) -> int | None:
    """Return the number times 10^scale as an integer, or None if the product is not an integer."""
    sign, digits, exponent = number.as_tuple()
    assert isinstance(exponent, int)  # it is finite
    unscaled: int = int("".join(map(str, digits)))
    shift = exponent + scale
    if shift >= 0:
        unscaled *= int(10**shift)
    else:
        unscaled, rest = divmod(unscaled, int(10**-shift))
        if rest:
            return None
    return -unscaled if sign else unscaled


def _plain(number: Decimal) -> str:
    """Format a number without exponent and trailing zeros."""
    exponent = number.as_tuple().exponent
    assert isinstance(exponent, int)  # it is finite
    scale = max(0, -exponent)
    unscaled = _scaled(number, scale) or 0
    text = str(abs(unscaled)).rjust(scale + 1, "0")
    text = f"{text[:-scale]}.{text[-scale:]}".rstrip("0").rstrip(".") if scale else text
    return f"-{text}" if unscaled < 0 else text
