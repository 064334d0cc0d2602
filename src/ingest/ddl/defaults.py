"""Compute the value that a column has in rows that were written before it was added, from its default.

An explicit literal is converted as the server stores it. Without DEFAULT the value is NULL, or the type's implicit
default if the column is NOT NULL. It is unknown for expressions, CURRENT_TIMESTAMP, AUTO_INCREMENT, generated columns,
zero dates, and timestamps, whose text is in the session's time zone. Source: MySQL's reference manual, "Data Type
Default Values".
"""

from __future__ import annotations

import base64
import re
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation
from ipaddress import IPv4Address, IPv6Address
from typing import Literal as OneOf
from uuid import UUID

from cdc.model.types import SPATIAL, Canonical, LogicalType, from_mysql
from ingest.binlog.format import canonical
from ingest.binlog.rows.convert import DECLARED_BYTES
from ingest.ddl.dialect import Dialect
from ingest.ddl.errors import DdlNotUnderstood
from ingest.ddl.lexer import Word, words_of

_UNKNOWN: tuple[Canonical, bool] = (None, False)
_INTEGERS = ("int8", "int16", "int32", "int64", "uint64")
_TEMPORAL_WORDS = ("DATE", "TIME", "TIMESTAMP")
# MariaDB's types whose texts have several forms, as bytes; `DECLARED_BYTES` prints the server's form
_PACKED: dict[str, Callable[[str], bytes]] = {
    "uuid": lambda text: UUID(text).bytes,
    "inet4": lambda text: IPv4Address(text).packed,
    "inet6": lambda text: IPv6Address(text if ":" in text else f"::ffff:{text}").packed,
}
_PACKED_ZERO = {"uuid": "0" * 32, "inet4": "0.0.0.0", "inet6": "::"}  # an IP value, not a listening address
_DAY = re.compile(r"\d{4}-\d\d-\d\d(?: 00:00:00(?:\.0+)?)?")
_MOMENT = re.compile(r"(\d{4}-\d\d-\d\d)(?:[ T](\d\d:\d\d:\d\d)(?:\.(\d{1,6}))?)?")
_CLOCK = re.compile(r"-?\d{2,3}:\d\d:\d\d(?:\.(\d{1,6}))?")
_MEMBER = re.compile(r"'((?:[^']|'')*)'")
_SIZE = re.compile(r"\((\d+)")
_EXACT: dict[
    str, tuple[str, ...]
] = {  # kinds that a value of each kind converts to without loss, in addition to its own kind
    **dict.fromkeys(_INTEGERS, (*_INTEGERS, "decimal", "string")),
    "decimal": ("string",),
    "date": ("datetime", "string"),
    "json": ("string",),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Literal:
    """A literal in a statement. `text` is decimal for kind `number`, hexadecimal digits for `bits`."""

    kind: OneOf["null", "text", "number", "bits"]
    text: str = ""


def literal_of(words: tuple[Word, ...]) -> Literal | None:
    """Return the literal after DEFAULT; None for an expression."""
    if not words:
        return None
    first, rest = words[0], words[1:]
    if not rest and first.upper in ("NULL", "TRUE", "FALSE"):
        return (
            Literal(kind="null")
            if first.upper == "NULL"
            else Literal(kind="number", text=str(+(first.upper == "TRUE")))
        )
    if all(word.kind == "string" for word in words):
        return Literal(kind="text", text="".join(word.text for word in words))
    if rest and first.kind == "word" and all(word.kind == "string" for word in rest):
        text = "".join(word.text for word in rest)
        if first.upper == "X":
            return _bits(text, 16)
        if first.upper == "B":
            return _bits(text, 2)
        known = first.upper == "N" or first.upper in _TEMPORAL_WORDS or first.text.startswith("_")
        return Literal(kind="text", text=text) if known else None
    text = "".join(word.text for word in words)
    if text[:2] in ("0x", "0b"):
        return _bits(text[2:], 16 if text[1] == "x" else 2)
    if all(word.kind == "number" or word.text in ("-", "+", ".") for word in words) and _number(text) is not None:
        return Literal(kind="number", text=text)
    return None


def _bits(digits: str, base: int) -> Literal | None:
    try:
        number = int(digits, base) if digits else 0
    except ValueError:
        return None
    return Literal(kind="bits", text=digits if base == 16 else format(number, "x"))


def initial_of(literal: Literal | None, column_type: str, *, nullable: bool) -> tuple[Canonical, bool]:
    """Return (canonical value that rows older than the column have, whether it is known).

    `literal` is None if the column has no DEFAULT. Older rows then have NULL, or in a NOT NULL column the type's
    implicit default.
    """
    if literal is None or literal.kind == "null":
        return (None, True) if nullable else _implicit(column_type)
    try:
        value = _value(literal, column_type)
    except (ValueError, InvalidOperation, OverflowError):
        return _UNKNOWN
    return value, value is not None


def converted_initial(value: Canonical, old: str, new: str, *, nullable: bool) -> tuple[Canonical, bool]:
    """Convert a result of `initial_of` from the type `old` to the type `new`. Returns (value, whether it is known).

    It is known only if the conversion is exact.
    """
    if value is None:
        return (None, True) if nullable else _implicit(new)
    if old == new:
        return value, True
    try:
        before, after = from_mysql(old), from_mysql(new)
    except ValueError:
        return _UNKNOWN
    if after.kind != before.kind and after.kind not in _EXACT.get(before.kind, ()):
        return _UNKNOWN
    text = str(value).removesuffix("Z").replace("T", " ") if before.kind in ("date", "datetime") else str(value)
    kind: OneOf["text", "number"] = "number" if before.kind in (*_INTEGERS, "decimal", "float32", "float64") else "text"
    if before.kind in ("bool", "bytes", "timestamp", "list", *SPATIAL):
        return _UNKNOWN
    return initial_of(Literal(kind=kind, text=text), new, nullable=nullable)


def shown_initial(row: Mapping[str, object], dialect: Dialect) -> tuple[Canonical, bool]:
    """Return (value, whether it is known) as `initial_of`, from a row of information_schema.COLUMNS.

    The row has the current default. If SET DEFAULT changed it, older rows may have another value, which is then not
    known.
    """
    shown, extra, column_type = row["column_default"], str(row["extra"] or "").upper(), str(row["column_type"])
    nullable = row["is_nullable"] == "YES"
    if "GENERATED" in extra or "AUTO_INCREMENT" in extra:
        return _UNKNOWN
    if shown is None:
        return initial_of(None, column_type, nullable=nullable)
    text = shown.decode("utf-8", "replace") if isinstance(shown, bytes) else str(shown)
    coded = column_type.startswith("bit") or (text.startswith("0x") and _kind(column_type) == "bytes")
    if not dialect.maria and not coded:
        return initial_of(Literal(kind="text", text=text), column_type, nullable=nullable)
    try:
        literal = literal_of(tuple(words_of(text, dialect)))
    except DdlNotUnderstood:
        return _UNKNOWN
    return _UNKNOWN if literal is None else initial_of(literal, column_type, nullable=nullable)


def _kind(column_type: str) -> str:
    try:
        return from_mysql(column_type).kind
    except ValueError:
        return ""


def _implicit(column_type: str) -> tuple[Canonical, bool]:
    """Return (implicit default of a type, whether it is known): the value of a NOT NULL column without DEFAULT in older
    rows."""
    kind = _kind(column_type)
    if kind in ("", "date", "datetime", "timestamp", "list", *SPATIAL):  # zero dates have no canonical form
        return _UNKNOWN
    if column_type.startswith("enum"):
        return _members(column_type)[0], True
    if kind == "json":
        return "null", True
    text = kind in ("string", "bytes") and not column_type.startswith("bit")
    return initial_of(Literal(kind="text" if text else "number", text="" if text else "0"), column_type, nullable=False)


def _value(literal: Literal, column_type: str) -> Canonical:
    """Return the canonical value of a literal as the column stores it. Returns None or raises ValueError if it is not
    known."""
    type_, text = from_mysql(column_type), literal.text
    if type_.kind == "bytes" or type_.kind == "bool":
        return _bytes(literal, column_type)
    if literal.kind == "bits":
        if type_.kind not in _INTEGERS:
            return None
        text = str(int(text or "0", 16))
    match type_.kind:
        case "date":
            return canonical.day(text[:10]) if _DAY.fullmatch(text) else None
        case "datetime":
            return _moment(text, _digits(column_type))
        case "time":
            if literal.kind == "number" and _number(text) == 0:
                return "00:00:00"
            found = _CLOCK.fullmatch(text)
            return canonical.clock(text) if found and len(found[1] or "") <= _digits(column_type) else None
        case "string":
            return _string(literal, column_type)
        case "json" | "timestamp" | "list" | "point" | "geometry":
            return None
    return _numeric(text, type_, column_type)


def _numeric(text: str, type_: LogicalType, column_type: str) -> Canonical:
    number = _number(text.strip())
    if number is None:
        return None
    if type_.kind in _INTEGERS:
        whole = int(number.quantize(Decimal(1), ROUND_HALF_UP))
        year = column_type.startswith("year")
        return None if year and whole and not 1901 <= whole <= 2155 else whole
    if type_.kind == "decimal":
        rounded = number.quantize(Decimal(1).scaleb(-type_.scale), ROUND_HALF_UP)
        return format(rounded if rounded else abs(rounded), "f")
    if "," in column_type:  # float(M,D) rounds
        return None if number else 0.0
    if type_.kind == "float32":
        return float(struct.unpack("f", struct.pack("f", float(number)))[0])
    return float(number)


def _bytes(literal: Literal, column_type: str) -> Canonical:
    if column_type.startswith("bit"):
        if literal.kind == "text":
            return None
        number = int(literal.text or "0", 16 if literal.kind == "bits" else 10)
        return canonical.bit(number, _size(column_type) or 1)
    if literal.kind == "bits":
        raw = bytes.fromhex(literal.text.rjust(len(literal.text) + len(literal.text) % 2, "0"))
    elif literal.text.isascii():
        raw = literal.text.encode()
    else:
        return None
    if column_type.startswith("binary"):
        raw = raw.ljust(_size(column_type) or 1, b"\0")
    return base64.b64encode(raw).decode()


def _string(literal: Literal, column_type: str) -> str | None:
    text = literal.text
    if column_type in _PACKED:
        raw = (text or _PACKED_ZERO[column_type]).strip()
        return DECLARED_BYTES[column_type](_PACKED[column_type](raw))
    if column_type.startswith("enum"):
        fold = text.rstrip(" ").casefold()
        members = _members(column_type)
        return next((m for m in members if m == text), next((m for m in members if m.casefold() == fold), None))
    if column_type.startswith("set"):
        members = _members(column_type)
        wanted = text.split(",") if text else []
        return text if [m for m in members if m in wanted] == wanted else None
    if literal.kind == "number" and not re.fullmatch(r"-?(0|[1-9]\d*)(\.\d+)?", text):
        return None
    return text.rstrip(" ") if column_type.startswith("char") else text


def _moment(text: str, digits: int) -> str | None:
    found = _MOMENT.fullmatch(text)
    if found is None or len((found[3] or "").rstrip("0")) > digits:
        return None
    fraction = f".{found[3]}" if found[3] else ""
    return canonical.moment(f"{found[1]} {found[2] or '00:00:00'}{fraction}")


def _members(column_type: str) -> list[str]:
    return [member.replace("''", "'") for member in _MEMBER.findall(column_type)]


def _size(column_type: str) -> int | None:
    found = _SIZE.search(column_type)
    return int(found[1]) if found else None


def _digits(column_type: str) -> int:
    return _size(column_type) or 0


def _number(text: str) -> Decimal | None:
    try:
        number = Decimal(text)
    except InvalidOperation:
        return None
    return number if number.is_finite() else None
