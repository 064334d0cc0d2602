"""Decode TABLE_MAP events: the columns of a table id, with MySQL's and MariaDB's optional metadata.

Source: `Table_map_event` in MySQL's `rows_event.h`, `Table_map_log_event::init_metadata_fields` of both families.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from ingest.binlog.format.charsets import charset_of, is_text, text_decoder
from ingest.binlog.format.codes import ColumnType
from ingest.binlog.format.columns import CHARACTER, LABELLED, NUMERIC, LoggedColumn
from ingest.binlog.format.errors import CorruptBinlog, UnsupportedEvent
from ingest.binlog.format.packed import U16, bit_set, length_encoded, take, take_encoded
from ingest.binlog.format.server_version import ServerVersion

T = ColumnType


@dataclass(frozen=True, slots=True, kw_only=True)
class TableMap:
    """The table that one TABLE_MAP event describes. `described`: the server added optional metadata.

    `primary_key` are (column index, prefix length, or 0 for the whole column) in key order; empty if unknown or none.
    """

    table_id: int
    flags: int = 0
    database: str
    table: str
    columns: tuple[LoggedColumn, ...] = ()
    primary_key: tuple[tuple[int, int], ...] = ()
    described: bool = False

    @property
    def name(self) -> str:
        """Return `database.table`."""
        return f"{self.database}.{self.table}"


def _length(size: int, meta: bytes, at: int) -> tuple[dict[str, Any], int]:
    return {"size": meta[at]}, at + size


def _varchar(meta: bytes, at: int) -> tuple[dict[str, Any], int]:
    width = U16(meta, at)[0]
    return {"width": width, "size": 2 if width > 255 else 1}, at + 2


def _string(meta: bytes, at: int) -> tuple[dict[str, Any], int]:
    """Decode the metadata of CHAR, BINARY, ENUM and SET, which share a type code.

    The first byte contains the real type, and high bits of the width.
    """
    real, width = meta[at], meta[at + 1]
    if real in (T.ENUM, T.SET):
        return {"type": T(real), "size": width}, at + 2
    if real & 0x30 != 0x30:
        width |= (real & 0x30 ^ 0x30) << 4
    return {"width": width, "size": 2 if width > 255 else 1}, at + 2


def _decimal(meta: bytes, at: int) -> tuple[dict[str, Any], int]:
    return {"precision": meta[at], "scale": meta[at + 1]}, at + 2


def _bit(meta: bytes, at: int) -> tuple[dict[str, Any], int]:
    bits = meta[at + 1] * 8 + meta[at]
    return {"width": bits, "size": (bits + 7) // 8}, at + 2


def _digits(meta: bytes, at: int) -> tuple[dict[str, Any], int]:
    return {"digits": meta[at]}, at + 1


def _nothing(meta: bytes, at: int) -> tuple[dict[str, Any], int]:
    return {}, at


_one = partial(_length, 1)
_METADATA: Final[dict[int, Callable[[bytes, int], tuple[dict[str, Any], int]]]] = {
    **dict.fromkeys((T.TINY, T.SHORT, T.INT24, T.LONG, T.LONGLONG, T.DECIMAL, T.NULL, T.YEAR), _nothing),
    **dict.fromkeys((T.DATE, T.NEWDATE, T.TIME, T.DATETIME, T.TIMESTAMP), _nothing),
    **dict.fromkeys((T.FLOAT, T.DOUBLE, T.BLOB, T.TINY_BLOB, T.MEDIUM_BLOB, T.LONG_BLOB, T.JSON), _one),
    **dict.fromkeys((T.GEOMETRY, T.VECTOR, T.MARIA_BLOB_COMPRESSED), _one),
    **dict.fromkeys((T.VARCHAR, T.MARIA_VARCHAR_COMPRESSED), _varchar),
    **dict.fromkeys((T.STRING, T.VAR_STRING), _string),
    **dict.fromkeys((T.TIMESTAMP2, T.DATETIME2, T.TIME2), _digits),
    T.NEWDECIMAL: _decimal,
    T.BIT: _bit,
}


def _columns(types: bytes, meta: bytes, nullable: bytes) -> list[LoggedColumn]:
    columns: list[LoggedColumn] = []
    at = 0
    for index, code in enumerate(types):
        read = _METADATA.get(code)
        if read is None:
            raise UnsupportedEvent(
                f"column {index + 1} has type {code}, which this library does not support",
                "its rows cannot be skipped safely; report the server's version",
            )
        facts, at = read(meta, at)
        column = LoggedColumn(index=index, name=f"@{index + 1}", type=T(code), nullable=bit_set(nullable, index))
        columns.append(replace(column, **facts) if facts else column)
    if at != len(meta):
        raise CorruptBinlog(f"a TABLE_MAP has {len(meta)} bytes of column metadata, but its types take {at}")
    return columns


def _integers(data: bytes) -> list[int]:
    values: list[int] = []
    at = 0
    while at < len(data):
        value, at = length_encoded(data, at)
        values.append(value)
    return values


def _strings(data: bytes) -> list[bytes]:
    values: list[bytes] = []
    at = 0
    while at < len(data):
        value, at = take_encoded(data, at)
        values.append(value)
    return values


def _signs(columns: Sequence[LoggedColumn], data: bytes, server: ServerVersion) -> dict[int, bool]:
    """Return the sign of each numeric column by index. Servers differ in whether YEAR has a bit; if so, it is 1."""
    for year in (True, False) if server.year_has_sign else (False,):
        numeric = [c for c in columns if c.type in NUMERIC or (year and c.type is T.YEAR)]
        if len(data) != (len(numeric) + 7) // 8:
            continue
        signs = {c.index: bool(data[i >> 3] >> (7 - (i & 7)) & 1) for i, c in enumerate(numeric)}
        if all(signs[c.index] for c in numeric if c.type is T.YEAR):
            return signs
    raise CorruptBinlog(f"a TABLE_MAP has {len(data)} bytes of signs, which fit no reading of its columns")


def _collations(columns: Sequence[LoggedColumn], data: bytes, default: bool) -> dict[int, int]:
    values = _integers(data)
    if not default:
        if len(values) != len(columns):
            raise CorruptBinlog(f"a TABLE_MAP has {len(values)} character sets for {len(columns)} columns")
        return {column.index: value for column, value in zip(columns, values, strict=True)}
    result = dict.fromkeys((column.index for column in columns), values[0])
    for at in range(1, len(values) - 1, 2):
        result[columns[values[at]].index] = values[at + 1]
    return result


def _label_lists(data: bytes) -> list[list[bytes]]:
    lists: list[list[bytes]] = []
    at = 0
    while at < len(data):
        count, at = length_encoded(data, at)
        if count > len(data):
            raise CorruptBinlog("a TABLE_MAP names more labels than it has bytes")
        labels: list[bytes] = []
        for _ in range(count):
            label, at = take_encoded(data, at)
            labels.append(label)
        lists.append(labels)
    return lists


def _describe(
    columns: list[LoggedColumn], data: bytes, server: ServerVersion
) -> tuple[list[LoggedColumn], tuple[tuple[int, int], ...]]:
    changes: list[dict[str, Any]] = [{} for _ in columns]
    also = T.GEOMETRY if server.maria else T.VECTOR
    characters = [c for c in columns if c.type in CHARACTER or c.type is also]
    labelled = [c for c in columns if c.type in LABELLED]
    labels: dict[int, list[bytes]] = {}
    primary: tuple[tuple[int, int], ...] = ()
    at = 0
    while at < len(data):
        kind = data[at]
        field, at = take_encoded(data, at + 1)
        if kind == 1:
            for index, unsigned in _signs(columns, field, server).items():
                changes[index]["unsigned"] = unsigned
        elif kind in (2, 3, 10, 11):
            of = characters if kind < 10 else labelled
            for index, collation in _collations(of, field, kind in (2, 10)).items():
                changes[index]["charset"] = charset_of(collation)
        elif kind == 4:
            for change, name in zip(changes, _strings(field), strict=True):
                change |= {"name": name.decode(), "named": True}
        elif kind in (5, 6):
            wanted = [c for c in columns if c.type is (T.SET if kind == 5 else T.ENUM)]
            for column, texts in zip(wanted, _label_lists(field), strict=True):
                labels[column.index] = texts
        elif kind == 7:
            for column, value in zip((c for c in columns if c.type is T.GEOMETRY), _integers(field), strict=True):
                changes[column.index]["geometry"] = value
        elif kind == 8:
            primary = tuple((index, 0) for index in _integers(field))
        elif kind == 9:
            values = _integers(field)
            primary = tuple(zip(values[::2], values[1::2], strict=True))
        elif kind == 12:
            for column in columns:
                changes[column.index]["visible"] = bool(field[column.index >> 3] >> (7 - (column.index & 7)) & 1)
        elif kind == 13:
            for column, value in zip((c for c in columns if c.type is T.VECTOR), _integers(field), strict=True):
                changes[column.index]["dimensions"] = value
        # Unknown kinds of newer servers only add information, so they are ignored.
    for index, texts in labels.items():
        if found := _decoded_labels(changes[index].get("charset"), texts):
            changes[index]["labels"] = found
    return [replace(c, **change) if change else c for c, change in zip(columns, changes, strict=True)], primary


def _decoded_labels(charset: str | None, labels: list[bytes]) -> tuple[str, ...]:
    """Return the labels as text; empty if a schema must supply them.

    MySQL's CONVERT TO CHARACTER SET leaves labels in the former character set.
    """
    if not charset or not (is_text(charset) or charset == "binary"):
        return ()
    try:
        return tuple(map(text_decoder("utf8mb4" if charset == "binary" else charset), labels))
    except UnicodeDecodeError:
        return ()


def table_name(body: bytes, id_size: int = 6) -> tuple[str, str]:
    """Return only database and table from the body of a TABLE_MAP event."""
    at = id_size + 2
    database, at = take(body, at + 1, body[at])
    table, _ = take(body, at + 2, body[at + 1])
    return database.decode(), table.decode()


def parse_table_map(body: bytes, server: ServerVersion, id_size: int = 6) -> TableMap:
    """Decode the body of a TABLE_MAP event (without header and checksum). `id_size` is the number of bytes of the table
    id."""
    table_id = int.from_bytes(body[:id_size], "little")
    flags = U16(body, id_size)[0]
    at = id_size + 2
    database, at = take(body, at + 1, body[at])
    table, at = take(body, at + 2, body[at + 1])
    count, at = length_encoded(body, at + 1)
    types, at = take(body, at, count)
    meta, at = take_encoded(body, at)
    nullable, at = take(body, at, (count + 7) // 8)
    columns = _columns(types, meta, nullable)
    if server.maria:
        # MariaDB's old temporal types may have a fraction, whose digits only a schema states.
        columns = [replace(c, digits=-1) if c.type in (T.TIME, T.DATETIME, T.TIMESTAMP) else c for c in columns]
    primary: tuple[tuple[int, int], ...] = ()
    described = at < len(body)
    if described:
        columns, primary = _describe(columns, body[at:], server)
    return TableMap(
        table_id=table_id,
        flags=flags,
        database=database.decode(),
        table=table.decode(),
        columns=tuple(columns),
        primary_key=primary,
        described=described,
    )
