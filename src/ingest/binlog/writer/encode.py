"""Encode values as row images, and columns as TABLE_MAP metadata; inverse of the row decoder.

It accepts the values that the decoder returns (texts for times and decimals, Python values for JSON). Raises
UndecodableValue for a value that its column cannot store.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import error as StructError
from struct import pack
from typing import Any, Final

from ingest.binlog.format.charset_tables import COLLATIONS
from ingest.binlog.format.charsets import PYTHON_CODECS
from ingest.binlog.format.codes import INTEGER_SIZES, ColumnType
from ingest.binlog.format.columns import CHARACTER, LABELLED, NUMERIC, LoggedColumn
from ingest.binlog.format.decimals import encode_decimal
from ingest.binlog.format.errors import UndecodableValue
from ingest.binlog.format.packed import encode_length
from ingest.binlog.json.encode import encode_json

T = ColumnType
_PREFERRED: Final = {"utf8mb4": 45, "utf8mb3": 33, "latin1": 8, "binary": 63}


def collation_of(charset: str) -> int:
    """Return a collation id of a character set: that of its default collation, if known."""
    return _PREFERRED.get(charset) or int(COLLATIONS[charset].replace("-", " ").split()[0])


def column_metadata(column: LoggedColumn) -> bytes:
    """Return the type metadata of a column in a TABLE_MAP event."""
    if column.type in (T.VARCHAR,):
        return column.width.to_bytes(2, "little")
    if column.type in (T.STRING, T.VAR_STRING):
        return bytes((T.STRING ^ ((column.width >> 4) & 0x30), column.width & 0xFF))
    if column.type in LABELLED:
        return bytes((column.type, column.size))
    if column.type is T.NEWDECIMAL:
        return bytes((column.precision, column.scale))
    if column.type is T.BIT:
        return bytes((column.width % 8, column.width // 8))
    if column.type in (T.TIMESTAMP2, T.DATETIME2, T.TIME2):
        return bytes((column.digits,))
    if column.type is T.FLOAT:
        return b"\x04"
    if column.type is T.DOUBLE:
        return b"\x08"
    if column.type in (T.BLOB, T.GEOMETRY, T.VECTOR, T.JSON):
        return bytes((column.size,))
    return b""


def _field(kind: int, data: bytes) -> bytes:
    return bytes((kind,)) + encode_length(len(data)) + data


def optional_metadata(columns: Sequence[LoggedColumn], primary_key: Sequence[int], *, year_has_sign: bool) -> bytes:
    """Return the optional metadata of a TABLE_MAP event, as with binlog_row_metadata=FULL.

    It contains signs, character sets, names, labels and primary key.
    """
    numeric = [c for c in columns if c.type in NUMERIC or (year_has_sign and c.type is T.YEAR)]
    parts: list[bytes] = []
    if numeric:
        signs = bytearray((len(numeric) + 7) // 8)
        for place, column in enumerate(numeric):
            if column.unsigned or column.type is T.YEAR:
                signs[place >> 3] |= 0x80 >> (place & 7)
        parts.append(_field(1, bytes(signs)))
    texts = [c for c in columns if c.type in CHARACTER]
    if texts:
        parts.append(_field(3, b"".join(encode_length(collation_of(c.charset or "binary")) for c in texts)))
    parts.append(_field(4, b"".join(encode_length(len(c.name.encode())) + c.name.encode() for c in columns)))
    for kind, wanted in ((5, T.SET), (6, T.ENUM)):
        lists = [
            encode_length(len(c.labels or ()))
            + b"".join(encode_length(len(label.encode())) + label.encode() for label in c.labels or ())
            for c in columns
            if c.type is wanted
        ]
        if lists:
            parts.append(_field(kind, b"".join(lists)))
    if primary_key:
        parts.append(_field(8, b"".join(map(encode_length, primary_key))))
    labelled = [c for c in columns if c.type in LABELLED]
    if labelled:
        parts.append(_field(11, b"".join(encode_length(collation_of("utf8mb4")) for _ in labelled)))
    return b"".join(parts)


def _integer(column: LoggedColumn, value: Any) -> bytes:
    return int(value).to_bytes(INTEGER_SIZES[column.type], "little", signed=not column.unsigned)


def _split(text: str) -> tuple[str, int]:
    """Split the text of a time into the part before the fraction, and the microseconds."""
    whole, _, fraction = text.partition(".")
    return whole, int(fraction.ljust(6, "0")[:6]) if fraction else 0


def _fraction(micros: int, digits: int) -> bytes:
    size = (digits + 1) // 2
    unit = (1, 10_000, 100, 1)[size]
    return (micros // unit).to_bytes(size, "big") if size else b""


def _date(column: LoggedColumn, value: Any) -> bytes:
    year, month, day = map(int, str(value).split("-"))
    return (year << 9 | month << 5 | day).to_bytes(3, "little")


def _datetime2(column: LoggedColumn, value: Any) -> bytes:
    whole, micros = _split(str(value).replace("T", " "))
    date, clock = whole.split(" ")
    year, month, day = map(int, date.split("-"))
    hour, minute, second = map(int, clock.split(":"))
    packed = (year * 13 + month) << 22 | day << 17 | hour << 12 | minute << 6 | second
    return (packed | 1 << 39).to_bytes(5, "big") + _fraction(micros, column.digits)


def _timestamp2(column: LoggedColumn, value: Any) -> bytes:
    from calendar import timegm
    from datetime import datetime

    whole, micros = _split(str(value).removesuffix("Z").replace("T", " "))
    seconds = 0 if whole.startswith("0000") else timegm(datetime.fromisoformat(whole).timetuple())
    return seconds.to_bytes(4, "big") + _fraction(micros, column.digits)


def _time2(column: LoggedColumn, value: Any) -> bytes:
    text = str(value)
    whole, micros = _split(text.lstrip("-"))
    hour, minute, second = map(int, whole.split(":"))
    size = (column.digits + 1) // 2
    unit = (1, 10_000, 100, 1)[size]
    magnitude = (hour << 12 | minute << 6 | second) << 8 * size | (micros // unit if size else 0)
    width = 3 + size
    return ((1 << (8 * width - 1)) + (-magnitude if text.startswith("-") else magnitude)).to_bytes(width, "big")


def _decimal(column: LoggedColumn, value: Any) -> bytes:
    return encode_decimal(value, column.precision, column.scale)


def _json(column: LoggedColumn, value: Any) -> bytes:
    document = encode_json(value)
    return len(document).to_bytes(column.size, "little") + document


def _bit(column: LoggedColumn, value: Any) -> bytes:
    return int(value).to_bytes(column.size, "big")


def _enum(column: LoggedColumn, value: Any) -> bytes:
    index = int(value) if isinstance(value, int) else ("", *(column.labels or ())).index(value)
    return index.to_bytes(column.size, "little")


def _set(column: LoggedColumn, value: Any) -> bytes:
    labels = column.labels or ()
    if isinstance(value, int):
        return value.to_bytes(column.size, "little")
    mask = sum(1 << labels.index(label) for label in value.split(",") if label)
    return mask.to_bytes(column.size, "little")


def _text(column: LoggedColumn, value: Any) -> bytes:
    if isinstance(value, bytes):
        raw = value
    else:
        codec = "latin-1" if column.charset == "latin1" else PYTHON_CODECS[column.charset or "utf8mb4"]
        raw = value.encode(codec)
    if column.type is T.STRING and column.charset == "binary":
        raw = raw.rstrip(b"\0")
    return len(raw).to_bytes(column.size, "little") + raw


_ENCODERS: Final[dict[ColumnType, Callable[[LoggedColumn, Any], bytes]]] = {
    **dict.fromkeys(INTEGER_SIZES, _integer),
    **dict.fromkeys((T.VARCHAR, T.STRING, T.VAR_STRING, T.BLOB, T.GEOMETRY, T.VECTOR), _text),
    T.FLOAT: lambda column, value: pack("<f", value),
    T.DOUBLE: lambda column, value: pack("<d", value),
    T.YEAR: lambda column, value: bytes((int(value) - 1900 if int(value) else 0,)),
    T.DATE: _date,
    T.DATETIME2: _datetime2,
    T.TIMESTAMP2: _timestamp2,
    T.TIME2: _time2,
    T.NEWDECIMAL: _decimal,
    T.JSON: _json,
    T.BIT: _bit,
    T.ENUM: _enum,
    T.SET: _set,
}


def bitmap(bits: Sequence[bool]) -> bytes:
    """Return bits as a bitmap. Bit 0 is the lowest bit of the first byte."""
    data = bytearray((len(bits) + 7) // 8)
    for place, bit in enumerate(bits):
        if bit:
            data[place >> 3] |= 1 << (place & 7)
    return bytes(data)


def encode_image(columns: Sequence[LoggedColumn], row: dict[str, Any]) -> bytes:
    """Encode the row image of these columns: bitmap of NULLs, then the values.

    Raises UndecodableValue for a value that does not fit its column, and for column types that cannot be written.
    """
    parts = [bitmap([row[column.name] is None for column in columns])]
    for column in columns:
        value = row[column.name]
        if value is None:
            continue
        encode = _ENCODERS.get(column.type)
        if encode is None:
            raise UndecodableValue(
                f"{column.name}: {column.type.name} cannot be written by this library", "let a server write it"
            )
        try:
            parts.append(encode(column, value))
        except (ValueError, OverflowError, StructError, LookupError, TypeError) as error:
            raise UndecodableValue(f"{column.name}: {value!r:.40} does not fit {column.type.name}: {error}") from error
    return b"".join(parts)
