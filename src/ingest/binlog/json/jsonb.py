"""Decode MySQL's binary JSON, the bytes of a JSON column, to Python values.

A JSON null at the top is `JSON_NULL`, so that it is not confused with SQL's NULL. Decimals become `Decimal`. Temporal
values become the text that the server prints inside JSON, other opaque values its `base64:typeN:…` form. Malicious
documents end in ValueError: depth, offsets and number of values are bounded by the document's size. Source:
`sql-common/json_binary.cc` of MySQL.
"""

from __future__ import annotations

import base64
from decimal import Decimal
from enum import Enum
from functools import lru_cache
from struct import Struct
from typing import Any, Final

from ingest.binlog.format.decimals import decimal_plan, decimal_text
from ingest.binlog.format.packed import I64, U16, U32, U64
from ingest.binlog.format.temporal import packed_datetime_text
from ingest.binlog.json.shape import Shapes

MAX_DEPTH: Final = 100
_I16: Final = Struct("<h").unpack_from
_I32: Final = Struct("<i").unpack_from
_F64: Final = Struct("<d").unpack_from
LITERALS: Final[dict[int, bool | None]] = {0: None, 1: True, 2: False}
_KEY_LIMIT: Final = 1 << 16
_keys: dict[bytes, str] = {}


class JsonNull(Enum):
    """Type of `JSON_NULL`, the JSON document that is null."""

    JSON_NULL = "null"

    def __repr__(self) -> str:
        return "JSON_NULL"


JSON_NULL: Final = JsonNull.JSON_NULL


def decode_json(document: bytes) -> Any:
    """Decode the bytes of a JSON column. An empty document, which the server stores for a missing default, is JSON
    null."""
    if not document:
        return JSON_NULL
    value = _value(document, 1, document[0], MAX_DEPTH, [len(document)])
    return JSON_NULL if value is None else value


def value_at(document: bytes, at: int, kind: int) -> Any:
    """Decode one value of a type (`kind`) at an offset inside a document."""
    return _value(document, at, kind, MAX_DEPTH, [len(document)])


@lru_cache(1024)
def _object_header(count: int) -> Any:
    return Struct("<" + "HH" * count + "BH" * count).unpack_from


@lru_cache(1024)
def _array_header(count: int) -> Any:
    return Struct("<" + "BH" * count).unpack_from


@lru_cache(1024)
def _large_object_header(count: int) -> Any:
    return Struct("<" + "IH" * count + "BI" * count).unpack_from


@lru_cache(1024)
def _large_array_header(count: int) -> Any:
    return Struct("<" + "BI" * count).unpack_from


def _string(data: bytes, at: int) -> bytes:
    size = data[at]
    at += 1
    if size > 127:
        size &= 127
        shift = 7
        while True:
            more = data[at]
            at += 1
            size |= (more & 127) << shift
            if more < 128:
                break
            shift += 7
            if shift > 28:
                raise ValueError("a JSON string is longer than 4 GiB")
    end = at + size
    if end > len(data):
        raise ValueError("a JSON string runs past its document")
    return data[at:end]


def _key(raw: bytes) -> str:
    text = _keys.get(raw)
    if text is None:
        text = raw.decode()
        if len(_keys) < _KEY_LIMIT:
            _keys[raw] = text
    return text


def _value(data: bytes, at: int, kind: int, depth: int, budget: list[int]) -> Any:
    if kind == 0x0C:
        return _string(data, at).decode()
    if kind < 4:
        if not depth:
            raise ValueError(f"JSON nested more than {MAX_DEPTH} deep")
        return _container(data, at, kind, depth - 1, budget)
    if kind == 0x05:
        return _I16(data, at)[0]
    if kind == 0x04:
        return LITERALS[data[at]]
    if kind == 0x0B:
        return _F64(data, at)[0]
    if kind == 0x06:
        return U16(data, at)[0]
    if kind == 0x07:
        return _I32(data, at)[0]
    if kind == 0x08:
        return U32(data, at)[0]
    if kind == 0x09:
        return I64(data, at)[0]
    if kind == 0x0A:
        return U64(data, at)[0]
    if kind == 0x0F:
        return opaque_value(data[at], _string(data, at + 1))
    raise ValueError(f"no JSON value has type {kind}")


def _container(data: bytes, at: int, kind: int, depth: int, budget: list[int]) -> Any:
    large = kind & 1
    count = U32(data, at)[0] if large else data[at] | data[at + 1] << 8
    budget[0] -= count + 1
    if budget[0] < 0:
        raise ValueError("a JSON document claims more values than it has room for")
    if not count:
        return [] if kind > 1 else {}
    if not large:
        shape = _SHAPES.array(data, at, count) if kind else _SHAPES.object(data, at, count)
        if shape is not None:
            return shape(data, at, depth, budget)
    if kind > 1:
        head = _large_array_header(count)(data, at + 8) if large else _array_header(count)(data, at + 4)
        return [_item(data, at, head[i], head[i + 1], large, depth, budget) for i in range(0, 2 * count, 2)]
    head = _large_object_header(count)(data, at + 8) if large else _object_header(count)(data, at + 4)
    result: dict[str, Any] = {}
    second = 2 * count
    for i in range(0, second, 2):
        begin = at + head[i]
        end = begin + head[i + 1]
        if end > len(data):
            raise ValueError("a JSON key runs past its document")
        raw = data[begin:end]
        key = _keys.get(raw) or _key(raw)
        result[key] = _item(data, at, head[second + i], head[second + i + 1], large, depth, budget)
    return result


def _item(data: bytes, at: int, kind: int, value: int, large: int, depth: int, budget: list[int]) -> Any:
    """Decode a value entry. Small values are in the entry itself; others are at an offset from their container's
    begin."""
    if kind == 0x05:
        value &= 0xFFFF
        return value - 0x10000 if value > 0x7FFF else value
    if kind == 0x04:
        return LITERALS[value & 0xFF]
    if kind == 0x06:
        return value & 0xFFFF
    if large:
        if kind == 0x07:
            return value - (1 << 32) if value > 0x7FFFFFFF else value
        if kind == 0x08:
            return value
    return _value(data, at + value, kind, depth, budget)


def opaque_value(kind: int, raw: bytes) -> Any:
    """Decode an SQL value inside a document: `kind` is its column type, `raw` its bytes.

    Raises ValueError for a DECIMAL of another length than its type has."""
    if kind == 246 and len(raw) > 2:
        plan = decimal_plan(raw[0], raw[1])
        if len(raw) - 2 != plan.size:
            raise ValueError("a DECIMAL inside JSON has the wrong length")
        return Decimal(decimal_text(raw[2:], plan))
    name = {10: "date", 11: "time", 7: "datetime", 12: "datetime"}.get(kind)
    if name and len(raw) == 8:
        return packed_datetime_text(I64(raw, 0)[0], name)
    return f"base64:type{kind}:{base64.b64encode(raw).decode()}"


_SHAPES: Final = Shapes(_value, LITERALS)
