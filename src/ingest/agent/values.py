"""MySQL's values in canonical form (`cdc.types`): from the text that a SELECT returns, and pieces shared with `rows`.

A value without canonical form raises Unrepresentable; it never becomes NULL or a guess.
"""

from __future__ import annotations

import base64
import datetime as dt
import re
from collections.abc import Callable

from cdc.schema import Column
from cdc.types import Canonical

FromText = Callable[[str | bytes], Canonical]

# Character sets whose bytes Python decodes exactly as MySQL does; others are refused at the start.
_CODECS = {
    "utf8mb4": "utf-8",
    "utf8mb3": "utf-8",
    "utf8": "utf-8",
    "ascii": "ascii",
    "latin1": "cp1252",
    "ucs2": "utf-16-be",
    "utf16": "utf-16-be",
    "utf16le": "utf-16-le",
    "utf32": "utf-32-be",
    "latin2": "iso8859-2",
    "latin5": "iso8859-9",
    "koi8r": "koi8-r",
}
_MEMBER = re.compile(r"'((?:[^']|'')*)'")


class Unrepresentable(ValueError):
    """A value that no canonical value can stand for; the message says which and why."""


def is_supported(charset: str) -> bool:
    """Whether text in this character set can be captured exactly."""
    return charset in _CODECS


def decode_text(stored: bytes, charset: str) -> str:
    """Text of bytes in a MySQL character set; Unrepresentable when they are not text in it."""
    try:
        return stored.decode(_CODECS[charset])
    except UnicodeDecodeError as error:
        if charset == "latin1":  # MySQL keeps the five codes that cp1252 leaves undefined as control characters
            return "".join(bytes([b]).decode("cp1252", "ignore") or chr(b) for b in stored)
        raise Unrepresentable(f"bytes {stored[:40].hex()} are not text in {charset}") from error


def members(column_type: str) -> tuple[str, ...]:
    """Members of `enum('a','b')` or `set(…)` in order."""
    return tuple(match.replace("''", "'") for match in _MEMBER.findall(column_type))


def date_of(year: int, month: int, day: int) -> str:
    """`YYYY-MM-DD` of a day that exists; Unrepresentable for zero dates and for days such as 31 February."""
    try:
        return dt.date(year, month, day).isoformat()
    except ValueError as error:
        raise Unrepresentable(f"{year:04}-{month:02}-{day:02} is not a day") from error


def with_fraction(text: str, fraction: str) -> str:
    """Append the fraction of a second, without its trailing zeros."""
    digits = fraction.rstrip("0")
    return f"{text}.{digits}" if digits else text


def base64_of(stored: bytes) -> str:
    """Canonical form of bytes."""
    return base64.b64encode(stored).decode()


def bits_of(stored: bytes) -> str:
    """Canonical form of BIT(n), n > 1: little-endian bytes as Debezium has them; MySQL's are big-endian."""
    return base64_of(stored[::-1])


def _date(text: str) -> str:
    year, month, day = text.split("-")
    return date_of(int(year), int(month), int(day)) + "Z"


def _datetime(text: str) -> str:
    day, _, time = text.partition(" ")
    whole, _, fraction = time.partition(".")
    return with_fraction(f"{_date(day)[:-1]}T{whole}", fraction) + "Z"


def _time(text: str) -> str:
    whole, _, fraction = text.partition(".")
    return with_fraction(whole, fraction)


def _decimal(text: str) -> str:
    sign, digits = ("-", text[1:]) if text.startswith("-") else ("", text)
    whole, dot, fraction = digits.partition(".")
    return f"{sign}{whole.lstrip('0') or '0'}{dot}{fraction}"


_TEXTS: dict[str, Callable[[str], Canonical]] = {
    "decimal": _decimal,
    "float32": float,
    "float64": float,
    "date": _date,
    "datetime": _datetime,
    "timestamp": _datetime,
    "time": _time,
    "string": str,
    "json": str,
}


def from_text(column: Column) -> FromText:
    """Function value as a SELECT returns it (session in UTC; FLOAT selected as DOUBLE) → canonical value, never NULL.

    Text arrives as str, binary strings and BIT as bytes.
    """
    kind, is_bit = column.type.kind, column.column_type.startswith("bit")

    def read(value: str | bytes) -> Canonical:
        if isinstance(value, bytes):
            if kind == "bool":
                return value != b"\x00"
            if kind != "bytes":
                raise Unrepresentable(f"column {column.name}: bytes where {kind} is expected")
            return bits_of(value) if is_bit else base64_of(value)
        return _TEXTS.get(kind, int)(value)

    return read


def select_expression(column: Column, quoted: str) -> str:
    """What a snapshot selects for a column: FLOAT as DOUBLE, since MySQL prints FLOAT with six digits only."""
    return f"{quoted} * 1e0" if column.type.kind == "float32" else quoted
