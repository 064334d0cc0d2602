"""Convert the server's texts to canonical values (`cdc.model.types`), both for the binlog and for SELECTs.

Because both use these functions, a row that a snapshot reads equals the row in the log. A value without canonical form
(a zero date, the 31st of February) raises Unrepresentable; it never becomes NULL or a guess.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from math import isfinite
from struct import iter_unpack
from typing import Final

import orjson

from cdc.model.geometry import NoGeometry, struct_of
from cdc.model.types import Struct
from ingest.binlog.format.temporal import DATETIME_DAYS as DAYS_OF_DATETIME
from ingest.binlog.format.temporal import date_text

_LIMIT: Final = 1 << 17
# Canonical JSON writes doubles between these limits without an exponent.
_SMALL, _LARGE = 1e-20, 1e22
# An exponent as the decoder prints it. (A pattern that starts with a plain character is much faster to search for.)
_EXPONENT: Final = re.compile(r"e(?<=\de)[-+]?\d")
_TOKEN: Final = re.compile(r'("(?:[^"\\]|\\.)*")|\s+|(-?\d+(?:\.\d+)?[eE][-+]?\d+)')


class Unrepresentable(ValueError):
    """A value has no canonical form. The message contains the value and the reason."""


def _day(text: str) -> str:
    try:
        return date.fromisoformat(text).isoformat()
    except ValueError as error:
        raise Unrepresentable(f"{text} is not a day") from error


class _Days(dict[str, str]):
    """Cache: `YYYY-MM-DD` → the same with a T. A day that does not exist raises Unrepresentable."""

    def __missing__(self, text: str) -> str:
        if len(self) > _LIMIT:
            self.clear()
        found = self[text] = _day(text) + "T"
        return found


class _PackedDays(dict[bytes, str]):
    """Cache: three bytes of a DATE → `YYYY-MM-DDZ`. A day that does not exist raises Unrepresentable."""

    def __missing__(self, stored: bytes) -> str:
        if len(self) > _LIMIT:
            self.clear()
        packed = int.from_bytes(stored, "little")
        found = self[stored] = day(date_text(packed >> 9, packed >> 5 & 15, packed & 31))
        return found


class _DatetimeDays(dict[int, str]):
    """Cache: first 23 bits of a DATETIME2 → `YYYY-MM-DD`. A day that does not exist raises Unrepresentable."""

    def __missing__(self, packed: int) -> str:
        if len(self) > _LIMIT:
            self.clear()
        found = self[packed] = _day(DAYS_OF_DATETIME[packed])
        return found


DATETIME_DAYS: Final = _DatetimeDays()
_DAYS: Final = _Days()
PACKED_DAYS: Final = _PackedDays()


def day(text: str) -> str:
    """Convert the text `YYYY-MM-DD` to canonical form."""
    return _day(text) + "Z"


def moment(text: str) -> str:
    """Convert the text `YYYY-MM-DD HH:MM:SS[.ffffff]` to canonical form."""
    if len(text) > 19:
        return f"{_DAYS[text[:10]]}{text[11:].rstrip('0').rstrip('.')}Z"
    return f"{_DAYS[text[:10]]}{text[11:]}Z"


def clock(text: str) -> str:
    """Convert the text of a TIME to canonical form, without trailing zeros of the fraction."""
    return text.rstrip("0").rstrip(".") if "." in text else text


def bit(value: int, width: int) -> bool | str:
    """Convert BIT(width) to canonical form: a boolean for one bit, else base64 of little-endian bytes, as in
    Debezium."""
    if width == 1:
        return bool(value)
    return base64.b64encode(value.to_bytes((width + 7) // 8, "little")).decode()


def geometry(stored: bytes) -> Struct:
    """Convert MySQL's stored bytes of a geometry (SRID and WKB) to Debezium's struct, the canonical form in the log."""
    return _struct(stored, point=False)


def point(stored: bytes) -> Struct:
    """Convert the stored bytes of a POINT column to canonical form."""
    return _struct(stored, point=True)


def _struct(stored: bytes, *, point: bool) -> Struct:
    try:
        return struct_of(stored, point=point)
    except NoGeometry as error:
        raise Unrepresentable(str(error)) from error


def vector(stored: bytes) -> list[float]:
    """Convert the stored bytes of a VECTOR (little-endian, four per number) to canonical form.

    Raises Unrepresentable for another length, or numbers that are not finite."""
    if len(stored) % 4:
        raise Unrepresentable(f"{len(stored)} bytes are not a vector")
    found = [number for (number,) in iter_unpack("<f", stored)]
    if not all(map(isfinite, found)):
        raise Unrepresentable("a vector with numbers that are not finite")
    return found


PACKED: Final[dict[str, Callable[[bytes], Struct | list[float]]]] = {
    "geometry": geometry, "point": point, "vector": vector,
}  # fmt: skip


def logged_json(text: str) -> str:
    """Convert the compact JSON text that the decoder writes to canonical form, without exponents of moderate
    doubles."""
    return json_text(text) if _EXPONENT.search(text) else text


def json_text(text: str) -> str:
    """Convert JSON text as a server prints it to canonical form: no blanks, and numbers as in `logged_json`."""
    parts = text.split('"')  # texts are at odd places
    if "\\" in text or len(parts) % 2 == 0:
        return tokens_text(text)
    rest = '"'.join(parts[::2]).replace(" ", "")
    letters = rest.replace("true", "").replace("false", "")
    if "e" in letters or "E" in letters or not letters.isprintable():  # an exponent; another blank
        return tokens_text(text)
    parts[::2] = rest.split('"')
    return '"'.join(parts)


def tokens_text(text: str) -> str:
    """Return the same as `json_text`, token by token."""
    return _TOKEN.sub(_token, text)


def _token(match: re.Match[str]) -> str:
    if match[2] is None:
        return match[1] or ""
    number = float(match[2])
    if not _SMALL <= abs(number) < _LARGE:
        return orjson.dumps(number).decode()
    plain = format(Decimal(repr(number)), "f")
    return plain if "." in plain else plain + ".0"
