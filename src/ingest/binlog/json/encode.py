"""Encode Python values as MySQL's binary JSON, byte for byte as a server does; inverse of `jsonb`.

It accepts the values that the decoder returns: `JSON_NULL` for a null document, `Decimal` for exact numbers. Times and
other SQL values inside a document are decoded to text, so they are encoded as strings. Raises ValueError for values
that JSON cannot represent (NaN, keys that are not text, more than 100 levels). Source: `sql-common/json_binary.cc` of
MySQL.
"""

from __future__ import annotations

from decimal import Decimal
from math import isfinite
from struct import pack
from typing import Any, Final

from ingest.binlog.format.decimals import encode_decimal
from ingest.binlog.json.jsonb import JSON_NULL, MAX_DEPTH

_LONGEST_KEY: Final = 0xFFFF
_LITERALS: Final = {None: 0, True: 1, False: 2}
_NEWDECIMAL: Final = 246
# Type and format of integers: the first one that fits. The server reads values beyond 32 bits as unsigned.
_INTEGERS: Final = (
    (0x05, "<h", -(1 << 15), 1 << 15),
    (0x07, "<i", -(1 << 31), 1 << 31),
    (0x09, "<q", -(1 << 63), 1 << 32),
    (0x0A, "<Q", 0, 1 << 64),
)


def encode_json(value: Any) -> bytes:
    """Return the bytes of a JSON column for a value."""
    kind, data = _encode(None if value is JSON_NULL else value, 0)
    return bytes((kind,)) + data


def _varying(size: int) -> bytes:
    """Encode a length in groups of seven bits, lowest first."""
    parts = bytearray()
    while size > 127:
        parts.append(size & 127 | 128)
        size >>= 7
    parts.append(size)
    return bytes(parts)


def _encode(value: Any, depth: int) -> tuple[int, bytes]:
    """Return (JSON type, bytes) of a value."""
    if value is None or value is True or value is False:
        return 0x04, bytes((_LITERALS[value],))
    if isinstance(value, str):
        raw = value.encode()
        return 0x0C, _varying(len(raw)) + raw
    if isinstance(value, int):
        for kind, form, low, high in _INTEGERS:
            if low <= value < high:
                return kind, pack(form, value)
        raise ValueError(f"{value} is beyond JSON's 64 bits")
    if isinstance(value, float):
        if not isfinite(value):
            raise ValueError(f"{value} is not a JSON number")
        return 0x0B, pack("<d", value)
    if isinstance(value, Decimal):
        raw = _decimal(value)
        return 0x0F, bytes((_NEWDECIMAL,)) + _varying(len(raw)) + raw
    if isinstance(value, dict | list | tuple):
        if depth >= MAX_DEPTH:
            raise ValueError(f"JSON nested more than {MAX_DEPTH} deep")
        return _container(value, depth + 1)
    raise ValueError(f"{type(value).__name__} is not a JSON type")


def _decimal(value: Decimal) -> bytes:
    if not value.is_finite():
        raise ValueError(f"{value} is not a JSON number")
    whole, _, fraction = format(value, "f").lstrip("-").partition(".")
    precision = max(1, len(whole.lstrip("0")) + len(fraction))
    return bytes((precision, len(fraction))) + encode_decimal(value, precision, len(fraction))


def _container(value: dict[Any, Any] | list[Any] | tuple[Any, ...], depth: int) -> tuple[int, bytes]:
    """Encode an object or array in the small form, or in the large one if offsets of two bytes do not suffice."""
    keys: list[bytes] = []
    items: list[Any] = list(value)
    if isinstance(value, dict):
        if not all(isinstance(key, str) for key in value):
            raise ValueError("a key of a JSON object is not text")
        # The server's order, in which it searches: shorter keys first.
        pairs = sorted(((key.encode(), item) for key, item in value.items()), key=lambda pair: (len(pair[0]), pair[0]))
        keys, items = [key for key, _ in pairs], [item for _, item in pairs]
        if keys and len(keys[-1]) > _LONGEST_KEY:
            raise ValueError(f"a key of a JSON object is longer than {_LONGEST_KEY} bytes")
    encoded = [_encode(item, depth) for item in items]
    kind = 0x00 if isinstance(value, dict) else 0x02
    data = _laid_out(keys, encoded, large=False)
    if data is not None:
        return kind, data
    data = _laid_out(keys, encoded, large=True)
    if data is None:
        raise ValueError("a JSON document is larger than 4 GiB")
    return kind | 1, data


def _laid_out(keys: list[bytes], items: list[tuple[int, bytes]], *, large: bool) -> bytes | None:
    """Return the bytes of a container: counts, key entries, value entries, keys, and values that do not fit their
    entries.

    Returns None if an offset is too large for the small form.
    """
    limit, number, size = (0xFFFFFFFF, "<I", 4) if large else (0xFFFF, "<H", 2)
    behind = 2 * size + len(keys) * (size + 2) + len(items) * (1 + size)
    if behind + sum(map(len, keys)) + sum(len(data) for _, data in items) - size * len(items) > limit:
        return None
    key_entries, entries, values = [], [], []
    for key in keys:
        key_entries.append(pack(number, behind) + pack("<H", len(key)))
        behind += len(key)
    for kind, data in items:
        if kind in (0x04, 0x05) or (large and kind == 0x07):
            sign = b"\xff" if kind != 0x04 and data[-1] & 0x80 else b"\0"
            entries.append(bytes((kind,)) + data + sign * (size - len(data)))
        else:
            if behind > limit:
                return None
            entries.append(bytes((kind,)) + pack(number, behind))
            values.append(data)
            behind += len(data)
    if behind > limit:
        return None
    return b"".join((pack(number, len(items)), pack(number, behind), *key_entries, *entries, *keys, *values))
