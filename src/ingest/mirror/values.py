"""Convert values of other writers' records to canonical values, by the column's type as MySQL writes it.

The representation depends on the writer's settings, and nearly always follows from the value. A number is days,
milliseconds or microseconds, by the number of digits of the column. A text is a time or a decimal. Other values raise
Unrepresentable.
"""

from __future__ import annotations

import base64
import datetime as dt
import decimal
import re
from collections.abc import Callable
from typing import Any

import orjson

from cdc.model.geometry import NoGeometry, ewkt_of
from cdc.model.types import Canonical, Member, Struct, float_of, from_mysql
from ingest.binlog.format.canonical import Unrepresentable

Read = Callable[[Any], Canonical]
_EPOCH = dt.datetime(1970, 1, 1)
_NUMBER = re.compile(r"-?\d+(\.\d+)?([eE][-+]?\d+)?")
_CLOCK = re.compile(r"-?\d{2,3}:\d\d:\d\d(\.\d+)?")
_DIGITS = re.compile(r"\((\d)\)")


def reader_of(column_type: str, *, decimals: str = "string") -> Read:
    """Return the function from a column's JSON value (not null) to its canonical value.

    `decimals` is `precise` for bytes in base64, Connect's own representation. Raises ValueError for a column type
    without canonical values.
    """
    kind = from_mysql(column_type)
    match kind.kind:
        case "bool":
            return flag
        case "decimal":
            return precise(kind.scale) if decimals == "precise" else decimal_of(kind.scale)
        case "float32" | "float64":
            return number
        case "date":
            return day
        case "datetime" | "timestamp":
            digits = _DIGITS.search(column_type)
            return moment(1000 if digits and int(digits[1]) > 3 else 1)
        case "time":
            return clock
        case "json":
            return json_text
        case "string" | "bytes":
            return text
        case "point" | "geometry":
            return geometry
        case "list":
            return floats
        case _:
            return whole


def whole(value: Any) -> int:
    """Convert a whole number, or its text. Raises ValueError or Unrepresentable for other values."""
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise Unrepresentable(f"{value!r} is not a whole number")
    return int(value)


def flag(value: Any) -> bool:
    """Convert a boolean, or 0 and 1. Raises Unrepresentable for other values."""
    if value in (True, False, 0, 1):
        return bool(value)
    raise Unrepresentable(f"{value!r} is not a boolean")


def number(value: Any) -> float | str:
    """Convert a floating-point number; Debezium writes NaN and infinities as strings.

    Raises ValueError or Unrepresentable for other values.
    """
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise Unrepresentable(f"{value!r} is not a number")
    return float_of(float(value))


def text(value: Any) -> str:
    """Return a text, or bytes in base64, unchanged. Raises Unrepresentable for other values."""
    if not isinstance(value, str):
        raise Unrepresentable(f"{value!r} is not a text")
    return value


def geometry(value: Any) -> Struct:
    """Convert Debezium's struct of a geometry. Raises Unrepresentable for other values."""
    if not isinstance(value, dict):
        raise Unrepresentable(f"{value!r} is not a geometry")
    try:
        ewkt_of(value)
    except NoGeometry as error:
        raise Unrepresentable(f"not a geometry: {error}") from error
    return {name: value.get(name) for name in ("x", "y", "wkb", "srid") if name in value or name == "srid"}


def floats(value: Any) -> list[Member]:
    """Convert a vector: an array of finite numbers. Raises Unrepresentable for other values."""
    if not isinstance(value, list):
        raise Unrepresentable(f"{value!r} is not a vector")
    found = [number(one) for one in value]
    if any(isinstance(one, str) for one in found):
        raise Unrepresentable("a vector with numbers that are not finite")
    return list(found)


def json_text(value: Any) -> str:
    """Return a JSON column's value as JSON text. Records contain it as such a text or as the JSON value itself."""
    return value if isinstance(value, str) else orjson.dumps(value).decode()


def decimal_of(scale: int) -> Read:
    """Return a function that converts a decimal from a text or a number."""

    def read(value: Any) -> str:
        if isinstance(value, bool) or not _NUMBER.fullmatch(str(value)):
            raise Unrepresentable(f"{value!r} is not a decimal")
        return fixed(decimal.Decimal(str(value)), scale)

    return read


def precise(scale: int) -> Read:
    """Return a function that converts a decimal from Connect's bytes: the unscaled number, big-endian, in base64."""

    def read(value: Any) -> str:
        unscaled = int.from_bytes(base64.b64decode(text(value), validate=True), "big", signed=True)
        return fixed(decimal.Decimal(unscaled).scaleb(-scale), scale)

    return read


def fixed(value: decimal.Decimal, scale: int) -> str:
    """Format a decimal with exactly `scale` digits after the point. Raises Unrepresentable if that would round it."""
    context = decimal.Context(prec=100, traps=[decimal.InvalidOperation, decimal.Inexact])
    try:
        return f"{value.quantize(decimal.Decimal(1).scaleb(-scale), context=context):f}"
    except decimal.DecimalException as error:
        raise Unrepresentable(f"{value} has more than {scale} digits after the point") from error


def day(value: Any) -> str:
    """Convert a date: a number of days since 1970, or a text. Raises Unrepresentable for other values."""
    try:
        if isinstance(value, int):
            return f"{(_EPOCH + dt.timedelta(days=value)).date().isoformat()}Z"
        return f"{dt.date.fromisoformat(text(value).removesuffix('Z')).isoformat()}Z"
    except (ValueError, OverflowError) as error:
        raise Unrepresentable(f"{value!r} is not a day") from error


def moment(scale: int) -> Read:
    """Return a function that converts a timestamp: a number of 1/(1000 · scale) s since 1970, or a text (default: UTC).

    The function raises Unrepresentable for a value that is no timestamp."""

    def read(value: Any) -> str:
        try:
            if isinstance(value, int) and not isinstance(value, bool):
                at = _EPOCH + dt.timedelta(microseconds=value * 1000 // scale)
            else:
                at = dt.datetime.fromisoformat(_micros(text(value)).replace("Z", "+00:00"))
                at = at.astimezone(dt.UTC).replace(tzinfo=None) if at.tzinfo else at
        except (ValueError, OverflowError) as error:
            raise Unrepresentable(f"{value!r} is not a timestamp") from error
        return _short(at.isoformat(timespec="microseconds")) + "Z"

    return read


def clock(value: Any, scale: int = 1) -> str:
    """Convert a time: a number in units of `scale` microseconds, or a text. Raises Unrepresentable for other values."""
    if isinstance(value, int) and not isinstance(value, bool):
        micros = abs(value) * scale
        seconds, fraction = divmod(micros, 1_000_000)
        shown = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}.{fraction:06d}"
        return ("-" if value < 0 else "") + _short(shown)
    found = text(value).removesuffix("Z")
    if not _CLOCK.fullmatch(found):
        raise Unrepresentable(f"{value!r} is not a time")
    return _short(found) if "." in found else found


def _short(shown: str) -> str:
    return shown.rstrip("0").rstrip(".")


def _micros(shown: str) -> str:
    """Truncate the fraction in a timestamp's text to six digits."""
    return re.sub(r"(\.\d{6})\d+", r"\1", shown)
