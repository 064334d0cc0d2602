"""Read the values of a row from a packet of MySQL's text protocol, and write them as JSON.

The result is the same as that of `values.from_text` for each value. Common types have a shorter way.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import orjson

from cdc.model.schema import Column, TableSchema
from ingest.binlog.format import canonical
from ingest.binlog.format.codes import ColumnType as T
from ingest.events.values import from_text
from ingest.records.row_json import ColumnForm, RowFunction, row_function

ReadPacket = Callable[[bytes], tuple[bytes | None, ...]]
_dumps = orjson.dumps
_INTEGERS = {T.TINY, T.SHORT, T.LONG, T.INT24, T.LONGLONG}
_WHOLE = {"int8", "int16", "int32", "int64", "uint64"}
_LONG = {252: 2, 253: 3, 254: 8}  # the first byte of a long value → the bytes of its length
_NULL = 251
_ZEROFILL = 64  # a flag of a result's column


class ResultColumn(NamedTuple):
    """Type and flags of a column of a result. `encoding` is None if its values are bytes."""

    type_code: int
    flags: int
    encoding: str | None


@lru_cache(256)
def packet_reader(width: int) -> ReadPacket:
    """Return the function from a packet to its first `width` values."""
    lines = ["def read(data):", "    e = 0"]
    for number in range(width):
        lines += [
            "    n = data[e]",
            f"    if n < {_NULL}:",
            f"        e += 1; c{number} = data[e:e + n]; e += n",
            "    else:",
            f"        c{number}, e = long(data, e)",
        ]
    lines.append(f"    return {', '.join(f'c{number}' for number in range(width))},")
    scope: dict[str, Any] = {"long": _long}
    exec("\n".join(lines), scope)  # only numbers of columns are in the text
    found: ReadPacket = scope["read"]
    return found


def _long(data: bytes, at: int) -> tuple[bytes | None, int]:
    """Return the value at a byte, and the offset after it; the value is NULL or has more than 250 bytes."""
    if data[at] == _NULL:
        return None, at + 1
    start = at + 1 + _LONG[data[at]]
    end = start + int.from_bytes(data[at + 1 : start], "little")
    return data[start:end], end


def packet_rows(schema: TableSchema, shown: tuple[ResultColumn, ...]) -> RowFunction:
    """Return the function from the values of a row to its key and image. `shown` are the columns of the result."""
    return row_function(tuple(map(_form, schema.columns, shown)), schema.primary_key)


@lru_cache(4096)
def _form(column: Column, shown: ResultColumn) -> ColumnForm:
    kind, filled = column.type.kind, shown.flags & _ZEROFILL
    if kind in _WHOLE and shown.type_code in _INTEGERS and not filled:
        return ColumnForm(column.name, "number")
    if kind == "decimal" and shown.type_code == T.NEWDECIMAL and not filled:
        return ColumnForm(column.name, "quoted")
    if kind == "string" and shown.encoding == "utf8":
        return ColumnForm(column.name, "text")
    if kind in ("datetime", "timestamp") and shown.type_code in (T.DATETIME, T.TIMESTAMP):
        return ColumnForm(column.name, "function", _moment)
    if kind == "date" and shown.type_code == T.DATE:
        return ColumnForm(column.name, "function", _DAYS.__getitem__)
    if kind == "bytes" and shown.encoding is None and not column.column_type.startswith(("bit", "enum", "set")):
        return ColumnForm(column.name, "function", _bytes)
    if kind == "json" and shown.encoding == "utf8":
        return ColumnForm(column.name, "function", _json)
    if kind in ("float32", "float64") and shown.type_code == T.DOUBLE:
        return ColumnForm(column.name, "function", _number)
    read, encoding = from_text(column), shown.encoding

    def value(found: bytes) -> bytes:
        return _dumps(read(found if encoding is None else found.decode(encoding)))

    return ColumnForm(column.name, "function", value)


class _Days(dict[bytes, bytes]):
    """Cache: a day as text → its JSON. A day that does not exist raises Unrepresentable."""

    def __missing__(self, text: bytes) -> bytes:
        if len(self) > 1 << 17:
            self.clear()
        found = self[text] = _dumps(canonical.day(text.decode()))
        return found


_DAYS = _Days()


def _moment(text: bytes) -> bytes:
    begin, clock = _DAYS[text[:10]], text[11:]
    if len(text) > 19:
        clock = clock.rstrip(b"0").rstrip(b".")
    return b'%bT%bZ"' % (begin[:-2], clock)


def _json(text: bytes) -> bytes:
    return _dumps(canonical.json_text(text.decode()))


def _number(text: bytes) -> bytes:
    return _dumps(float(text))


def _bytes(value: bytes) -> bytes:
    return b'"%b"' % b64encode(value)
