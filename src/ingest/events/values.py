"""Convert the texts of SELECT results and refused rows to canonical values (`cdc.model.types`).

The binlog decoder creates canonical values itself (`ingest.binlog.format.canonical`).
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from typing import Any

from cdc.model.errors import TableChanged
from cdc.model.schema import Column, TableSchema
from cdc.model.types import Canonical
from ingest.binlog.format import canonical
from ingest.binlog.format.canonical import Unrepresentable
from ingest.binlog.format.codes import ColumnType as T
from ingest.binlog.format.columns import LoggedColumn
from ingest.events.log_events import Image, RefusedImage, Row

FromText = Callable[[str | bytes], Canonical]
_MOMENTS = {T.DATETIME, T.DATETIME2, T.TIMESTAMP, T.TIMESTAMP2}
_DAYS = {T.DATE, T.NEWDATE}


def _decimal(text: str) -> str:
    sign, digits = ("-", text[1:]) if text.startswith("-") else ("", text)
    whole, dot, fraction = digits.partition(".")
    return f"{sign}{whole.lstrip('0') or '0'}{dot}{fraction}"


_TEXTS: dict[str, Callable[[str], Canonical]] = {
    "decimal": _decimal,
    "float32": float,
    "float64": float,
    "date": canonical.day,
    "datetime": canonical.moment,
    "timestamp": canonical.moment,
    "time": canonical.clock,
    "string": str,
    "json": canonical.json_text,
}


def _label(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        raise Unrepresentable("a label that is not UTF-8") from error


def from_text(column: Column) -> FromText:
    """Return the function from a column's value in a SELECT result to its canonical value; not called for NULL.

    The session's time zone must be UTC, and FLOAT selected as DOUBLE (`select_expression`). Texts arrive as str, binary
    strings and BIT as bytes. The function raises Unrepresentable for a value without a canonical form.
    """
    kind, is_bit = column.type.kind, column.column_type.startswith("bit")
    is_labelled = column.column_type.lower().startswith(("enum", "set"))
    packed = canonical.PACKED.get("vector" if kind == "list" else kind)

    def read(value: str | bytes) -> Canonical:
        if packed is not None:
            raw = value if isinstance(value, bytes) else bytes.fromhex(value)
            return packed(raw)  # type: ignore[return-value]  # a list of floats is a list of members
        if isinstance(value, bytes):
            if is_bit:
                width = 1 if kind == "bool" else 8 * len(value)
                return canonical.bit(int.from_bytes(value, "big"), width)
            if is_labelled:  # its character set is binary
                return _label(value)
            if kind != "bytes":
                raise Unrepresentable(f"bytes where {kind} is expected")
            return base64.b64encode(value).decode()
        return _TEXTS.get(kind, int)(value)

    return read


def select_expression(column: Column, quoted: str) -> str:
    """Return the SELECT expression that a snapshot uses for a column; `quoted` is the column's name in quotes.

    FLOAT is selected as DOUBLE, because MySQL prints FLOAT with only six digits. A VECTOR is selected in hexadecimal,
    because clients treat it as text.
    """
    if column.type.kind == "list":
        return f"HEX({quoted})"
    return f"{quoted} * 1e0" if column.type.kind == "float32" else quoted


def judged(columns: Sequence[LoggedColumn], row: Row) -> Image:
    """Convert the dates and times of a row from the server's texts to canonical values.

    A row with a value that has no canonical form becomes a RefusedImage, which keeps the server's text of it.
    """
    values, refused = dict(row), dict[str, str]()
    for column in columns:
        value = row.get(column.name)
        if not isinstance(value, str):
            continue
        try:
            if column.type in _MOMENTS:
                values[column.name] = canonical.moment(value)
            elif column.type in _DAYS:
                values[column.name] = canonical.day(value)
            elif column.type in (T.TIME, T.TIME2):
                values[column.name] = canonical.clock(value)
            elif column.type in (T.GEOMETRY, T.VECTOR) or column.declared == "vector":
                kind = "geometry" if column.type is T.GEOMETRY else "vector"
                packed = canonical.PACKED["point" if column.is_point else kind]
                values[column.name] = packed(base64.b64decode(value))  # type: ignore[assignment]  # as above
        except Unrepresentable as error:
            refused[column.name] = str(error)
    return RefusedImage(values=values, columns=refused) if refused else values


def readers_of(schema: TableSchema) -> list[tuple[str, FromText]]:
    """Return name and value reader of each column, for `image_of`."""
    return [(column.name, from_text(column)) for column in schema.columns]


def image_of(readers: list[tuple[str, FromText]], row: tuple[Any, ...]) -> Image:
    """Convert a row of a SELECT to an image. It becomes a RefusedImage if a value has no canonical form.

    `readers` are name and value reader of each column. Raises TableChanged if a value is not of its column's known
    type: the table was altered.
    """
    values: dict[str, Canonical] = {}
    refused: dict[str, str] = {}
    for (name, read), value in zip(readers, row, strict=True):
        if value is None:
            values[name] = None
            continue
        try:
            values[name] = read(value)
        except Unrepresentable as error:
            values[name] = value.hex() if isinstance(value, bytes) else value
            refused[name] = str(error)
        except ValueError as error:  # the column's type has changed since the schema was read
            raise TableChanged(f"column {name} has values that are not of its known type: it was altered") from error
    return RefusedImage(values=values, columns=refused) if refused else values
