"""Map PostgreSQL's types to MySQL's column types, and its values from the server's text to canonical values.

The session uses ISO dates, UTC, ISO 8601 intervals, hexadecimal bytea and shortest floating-point numbers. So a text
contains the whole value, and is equal in the log and in a SELECT. A column of a type without an equivalent is published
as that text, so no column is left out. A value without canonical form (an infinite date, NaN in a decimal, a year BC)
raises Unrepresentable.
"""

from __future__ import annotations

import re
import struct
from binascii import a2b_hex, b2a_base64
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import orjson

from cdc.model.geometry import NoGeometry, point_of
from cdc.model.types import Canonical, Struct, float_of
from ingest.binlog.format.canonical import Unrepresentable

Read = Callable[[bytes], Canonical]
_MOST_DIGITS, _MOST_SCALE = 65, 30  # MySQL's limits, within which every later stage is exact
_NINE, _DASH = ord("9"), ord("-")
_CLOCK = re.compile(rb"\d\d:\d\d:\d\d(?:\.\d+)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class PgType:
    """One type of a database: `kind` is pg_type.typtype, `element` the element type of an array, `base` that of a
    domain.

    `base_modifier` is the type modifier of a domain.
    """

    oid: int
    name: str
    kind: str = "b"
    element: int = 0
    base: int = 0
    base_modifier: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class PgTyped:
    """A column type as MySQL writes it, and the function from a value's text to its canonical value."""

    column_type: str
    read: Read


# Decodes a text. Raises UnicodeDecodeError (a ValueError) for other bytes in a database of encoding SQL_ASCII.
text: Callable[[bytes], str] = bytes.decode


def _flag(value: bytes) -> bool:
    return value in (b"t", b"1")


def _single(value: bytes) -> float | str:
    # the exact value of the four-byte number, as MySQL's binlog contains it
    return float_of(struct.unpack("f", struct.pack("f", float(value)))[0])


def _double(value: bytes) -> float | str:
    return float_of(float(value))


def _decimal(value: bytes) -> str:
    if value[-1] > _NINE:  # NaN, Infinity
        raise Unrepresentable(f"{value.decode()} is not a number")
    return value.decode()


def _date(value: bytes) -> str:
    if len(value) != 10 or value[4] != _DASH:
        raise Unrepresentable(f"{value.decode()} is not a day of the years 1 to 9999")
    return value.decode() + "Z"


def _moment(value: bytes) -> str:
    if value[4] != _DASH or value[-1] > _NINE:  # infinity; BC; a year of five digits
        raise Unrepresentable(f"{value.decode()} is not a time in the years 1 to 9999")
    return value.decode().replace(" ", "T") + "Z"


def _moment_in_zone(value: bytes) -> str:
    if value[-3:] != b"+00":
        raise Unrepresentable(f"{value.decode()} is not a time in the years 1 to 9999")
    return _moment(value[:-3])


def _clock(value: bytes) -> str:
    if not _CLOCK.fullmatch(value):
        raise Unrepresentable(f"{value.decode()} is not a time of day")
    return value.decode()


def _bytes(value: bytes) -> str:
    if value[:2] != b"\\x":
        raise Unrepresentable("bytes that are not in hexadecimal")
    return b2a_base64(a2b_hex(value[2:]), newline=False).decode()


def _point(value: bytes) -> Struct:
    x, y = value[1:-1].split(b",")
    try:
        return point_of(float(x), float(y))
    except NoGeometry as error:
        raise Unrepresentable(f"{value.decode()} is {error}") from error


# Name of a type in pg_catalog → (column type, function that reads its values). Every other type is `longtext`.
PLAIN: Mapping[str, tuple[str, Read]] = {
    "bool": ("bit(1)", _flag),
    "int2": ("smallint", int),
    "int4": ("int", int),
    "int8": ("bigint", int),
    "oid": ("bigint", int),
    "float4": ("float", _single),
    "float8": ("double", _double),
    "date": ("date", _date),
    "timestamp": ("datetime(6)", _moment),
    "timestamptz": ("timestamp(6)", _moment_in_zone),
    "time": ("time(6)", _clock),
    "json": ("json", text),
    "jsonb": ("json", text),
    "bytea": ("longblob", _bytes),
    "uuid": ("char(36)", text),
    "point": ("point", _point),
    "name": ("varchar(63)", text),
}
TEXTS = PgTyped(column_type="longtext", read=text)
_ENUM = PgTyped(column_type="varchar(63)", read=text)  # enum labels have at most 63 bytes


class PgTypes:
    """Types of one database by OID. `load` reads all types again when an unknown OID occurs."""

    def __init__(self, load: Callable[[], Iterable[PgType]]) -> None:
        self._load = load
        self._known: dict[int, PgType] = {}

    def typed(self, oid: int, modifier: int) -> PgTyped:
        """Return the type of a column. Values of a type that no longer exists stay texts."""
        found = self._known.get(oid)
        if found is None:
            self._known = {one.oid: one for one in self._load()}
            found = self._known.get(oid)
        if found is None:
            return TEXTS
        if found.kind == "d":
            return self.typed(found.base, found.base_modifier if modifier < 0 else modifier)
        if found.kind == "e":
            return _ENUM
        if found.element and found.name.startswith("_"):
            sign = ";" if found.name == "_box" else ","
            return PgTyped(column_type="json", read=array_reader(self.typed(found.element, modifier), sign))
        return _plain(found.name, modifier)


def _plain(name: str, modifier: int) -> PgTyped:
    if name in PLAIN:
        column_type, read = PLAIN[name]
        return PgTyped(column_type=column_type, read=read)
    if name == "numeric" and modifier >= 4:
        precision, scale = modifier - 4 >> 16 & 0xFFFF, ((modifier - 4 & 0x7FF) ^ 1024) - 1024
        if precision <= _MOST_DIGITS and 0 <= scale <= min(precision, _MOST_SCALE):
            return PgTyped(column_type=f"decimal({precision},{scale})", read=_decimal)
    if name in ("varchar", "bpchar") and modifier >= 4:
        return PgTyped(column_type=f"{'var' if name == 'varchar' else ''}char({modifier - 4})", read=text)
    if name == "bit" and modifier == 1:
        return PgTyped(column_type="bit(1)", read=_flag)
    return TEXTS


def array_reader(element: PgTyped, sign: str) -> Read:
    """Return the function that converts an array's text to a JSON text with canonical elements, nested by dimension.

    `sign` separates the elements. Lower bounds other than 1 are dropped.
    """

    def read(value: bytes) -> str:
        return orjson.dumps(_elements(value.decode(), element, sign)).decode()

    return read


def first_of(array: str) -> bytes | None:
    """Return the text of the only element of an array's text, the form of `attmissingval`; None for NULL."""
    found: list[bytes | None] = []
    _members(array, ",", found.append)
    return found[0]


def _elements(array: str, element: PgTyped, sign: str) -> list[object]:
    if array.startswith("["):  # [0:2]={1,2,3}
        array = array[array.index("{") :]
    json = element.column_type == "json"

    def member(one: bytes | None) -> object:
        if one is None:
            return None
        value = element.read(one)
        return orjson.Fragment(value) if json and isinstance(value, str) else value

    stack: list[list[object]] = [[]]
    _members(array, sign, lambda one: stack[-1].append(member(one)), lambda: stack.append([]), lambda: _close(stack))
    return stack[0]


def _close(stack: list[list[object]]) -> None:
    closed = stack.pop()
    stack[-1].append(closed)


def _nothing() -> None:
    """Do nothing: an array of one dimension has no inner arrays."""


def _members(
    array: str,
    sign: str,
    report: Callable[[bytes | None], object],
    opened: Callable[[], object] = _nothing,
    closed: Callable[[], object] = _nothing,
) -> None:
    """Parse an array's text: call `report` for each element in order, `opened` and `closed` for each inner array."""
    depth, at, size = 0, 0, len(array)
    while at < size:
        char = array[at]
        if char == "{":
            depth += 1
            if depth > 1:
                opened()
            at += 1
        elif char == "}":
            depth -= 1
            if depth:
                closed()
            at += 1
        elif char == '"':
            chars, at = [], at + 1
            while array[at] != '"':
                at += array[at] == "\\"
                chars.append(array[at])
                at += 1
            at += 1
            report("".join(chars).encode())
        elif char == sign:
            at += 1
        else:
            end = min(place for place in (array.find(sign, at), array.find("}", at), size) if place >= 0)
            word, at = array[at:end], end
            report(None if word == "NULL" else word.encode())
