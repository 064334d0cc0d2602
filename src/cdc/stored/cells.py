"""Convert rows ⇄ HBase cells under a layout; row keys, salt buckets and barriers.

A live row is one Put of every column of its layout, so that no column delete is ever needed: NULL is a zero-length cell
and a bit in `_nulls` (an empty string is a zero-length cell without the bit). Reserved qualifiers: `_nulls` bitmap (bit
i of byte i // 8 = column i), `_layout` 4-byte layout id, `_batch` 8-byte batch number, `_ts` 8-byte commit time (ms) of
the newest source change that the row shows, `_from` the lineage of its values (`cdc.stored.traces`), which rows of
older versions lack.

Row key = one salt byte (crc32 of the rest, modulo buckets), `01`, then each key column in sortable form. A nullable
column has one more byte in front: `00` for NULL, which ends it, `01` for a value. So NULL sorts first. A barrier's key
is the salt byte and `00 barrier`: it sorts before the bucket's rows, and scans of rows start after it.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from cdc.model.types import Canonical, LogicalType
from cdc.stored.layout import Layout
from cdc.stored.values import Decoder, Encoder, decoder, encoder

NULLS, LAYOUT, BATCH, TS, FROM = b"_nulls", b"_layout", b"_batch", b"_ts", b"_from"
RESERVED = frozenset({NULLS, LAYOUT, BATCH, TS, FROM})
BARRIER_SUFFIX = b"\x00barrier"
BARRIER = b"_barrier"
_INT, _LONG = struct.Struct(">i"), struct.Struct(">q")
_LONGEST_KEY = 32_767  # HBase's own limit, checked here so that it costs a row and not the query
_NULL, _VALUE = b"\x00", b"\x01"
_WIDTHS = {"int8": 1, "int16": 2, "int32": 4, "int64": 8, "uint64": 8}


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRow:
    """A decoded row: canonical values by column, and the reserved cells."""

    values: dict[str, Canonical]
    layout_id: int
    batch: int
    ts_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Barrier:
    """Row that marks the end of a batch in one salt bucket: all rows up to `batch` were written before it.

    `timestamp` is the batch's timestamp (ms). `buckets` is the number of buckets, each with a barrier. `positions` are
    the source positions that the table reflects at least: source → {"sequence": n, "gtid_set": "…", "file": "…", "pos":
    n, "exact": true if it reflects no later change of the source}. `ends` is where the batch ends in the log: one
    mapping topic → partition → offset per level of the plan that reads topics, the lowest level first. `incomplete` is
    the number of open dead letters since the join's run started: the table lacks those changes or rows.
    `watermark` (ms): for a table that joins by time, the time up to which it expects no more rows. `clock` (ms): for a
    table whose rows depend on `now()`, what it means.
    """

    bucket: int
    buckets: int
    batch: int
    timestamp: int
    positions: Mapping[str, Any]
    ends: Sequence[Mapping[str, Mapping[int, int]]] = ()
    incomplete: int = 0
    watermark: int | None = None
    clock: int | None = None

    def to_bytes(self) -> bytes:
        """Return the value of the cell `_barrier`; inverse of `load_barrier`."""
        fields = {"bucket": self.bucket, "buckets": self.buckets, "batch": self.batch, "stamp": self.timestamp}
        fields["incomplete"] = self.incomplete
        if self.watermark is not None:
            fields["watermark"] = self.watermark
        if self.clock is not None:
            fields["clock"] = self.clock
        return json.dumps({"format": 2, **fields, "positions": dict(self.positions), "ends": self.ends}).encode()


def load_barrier(stored: bytes) -> Barrier:
    """Read the value of the cell `_barrier`. Format 1 had neither `ends` nor `incomplete`: then
    `ends` is empty and `incomplete` is 0.

    Raises KeyError, ValueError, TypeError or AttributeError if the bytes are no barrier.
    """
    value = orjson.loads(stored)
    if value["format"] not in (1, 2):
        raise ValueError("barrier of an unknown format")
    levels = tuple(
        {topic: {int(partition): offset for partition, offset in ends.items()} for topic, ends in level.items()}
        for level in value.get("ends", ())
    )
    return Barrier(
        bucket=value["bucket"],
        buckets=value["buckets"],
        batch=value["batch"],
        timestamp=value["stamp"],
        positions=value["positions"],
        ends=levels,
        incomplete=value.get("incomplete", 0),
        watermark=value.get("watermark"),
        clock=value.get("clock"),
    )


def barrier_key(bucket: int) -> bytes:
    """Return the row key of a bucket's barrier."""
    return bytes([bucket]) + BARRIER_SUFFIX


def is_barrier(row_key: bytes) -> bool:
    """Return whether a row key of a joined table is that of a barrier."""
    return row_key[1:] == BARRIER_SUFFIX


def split_keys(buckets: int) -> list[bytes]:
    """Return the split points of a joined table: one region per salt bucket."""
    return [bytes([bucket]) for bucket in range(1, buckets)]


def _sortable(type_: LogicalType) -> Encoder:
    """Return the encoder of a key column: its bytes sort like the values, and no encoding is a prefix of another."""
    if type_.kind in _WIDTHS:
        width, offset = _WIDTHS[type_.kind], 0 if type_.kind == "uint64" else 1 << (8 * _WIDTHS[type_.kind] - 1)

        def integer(value: Canonical) -> bytes:
            if not isinstance(value, int):
                raise ValueError(f"row key value {value!r} is not an integer")
            return (value + offset).to_bytes(width, "big")

        return integer
    # A zero byte inside a value becomes 00 FF and the end is 00 00, which keeps the order and is unambiguous.
    assert type_.kind != "list", "a list in a row key"
    encode = encoder(type_)
    return lambda value: encode(value).replace(b"\x00", b"\x00\xff") + b"\x00\x00"


def _from_sortable(type_: LogicalType, stored: bytes) -> tuple[Canonical, bytes]:
    """Return the value at the beginning of `stored`, and the bytes after it; inverse of `_sortable`."""
    if width := _WIDTHS.get(type_.kind):
        offset = 0 if type_.kind == "uint64" else 1 << (8 * width - 1)
        return int.from_bytes(stored[:width], "big") - offset, stored[width:]
    end = stored.index(b"\x00\x00")
    return decoder(type_)(stored[:end].replace(b"\x00\xff", b"\x00")), stored[end + 2 :]


class RowCodec:
    """Encodes and decodes the rows of one layout; created once per layout, then called per row.

    Raises ValueError or struct.error for values that do not fit their column's type: the caller quarantines the row.
    """

    def __init__(self, layout: Layout, *, longest_key: int = _LONGEST_KEY) -> None:
        self.layout, self._longest = layout, longest_key
        self._columns: list[tuple[str, bytes, Encoder, Decoder]] = [
            (c.name, c.name.encode(), encoder(c.type), decoder(c.type)) for c in layout.columns
        ]
        types = {column.name: column.type for column in layout.columns}
        self._key_columns: list[tuple[str, bool, Encoder]] = [
            (name, name in layout.nullable_key, _sortable(types[name])) for name in layout.row_key
        ]
        self._layout_id = _INT.pack(layout.id)

    def row_key(self, values: Mapping[str, Canonical]) -> bytes:
        """Return the row key of a row, with its salt byte. Raises ValueError if a non-nullable column is NULL, or if
        the key is longer than `longest_key`, by default 32,767 bytes."""
        parts = []
        for name, nullable, encode in self._key_columns:
            value = values[name]
            if value is not None:
                parts.append(_VALUE + encode(value) if nullable else encode(value))
            elif nullable:
                parts.append(_NULL)
            else:
                raise ValueError(f"row key column {name} is NULL")
        key = b"\x01" + b"".join(parts)
        if len(key) >= self._longest:
            raise ValueError(f"row key of {len(key) + 1} bytes, the store takes {self._longest}")
        return bytes([zlib.crc32(key) % self.layout.salt_buckets]) + key

    def key_values(self, row_key: bytes) -> dict[str, Canonical]:
        """Return the values in a row key; inverse of `row_key`. Raises ValueError if it is not one of this layout."""
        found: dict[str, Canonical] = {}
        rest = row_key[2:]
        types = {column.name: column.type for column in self.layout.columns}
        for name, nullable, _ in self._key_columns:
            if nullable:
                is_null, rest = rest[:1] == _NULL, rest[1:]
                if is_null:
                    found[name] = None
                    continue
            found[name], rest = _from_sortable(types[name], rest)
        if rest:
            raise ValueError(f"{row_key.hex()} is no row key of {self.layout.table}")
        return found

    def cells(
        self, values: Mapping[str, Canonical], *, batch: int, ts_ms: int, trace: bytes = b""
    ) -> dict[bytes, bytes]:
        """Return qualifier → bytes of the whole row, including reserved cells."""
        nulls = bytearray((len(self._columns) + 7) // 8)
        cells: dict[bytes, bytes] = {}
        for i, (name, qualifier, encode, _) in enumerate(self._columns):
            value = values[name]
            if value is None:
                nulls[i >> 3] |= 1 << (i & 7)
                cells[qualifier] = b""
            else:
                cells[qualifier] = encode(value)
        cells[NULLS] = bytes(nulls)
        cells[LAYOUT] = self._layout_id
        cells[BATCH] = _LONG.pack(batch)
        cells[TS] = _LONG.pack(ts_ms)
        cells[FROM] = trace  # written even if empty, to replace the lineage of an older put
        return cells

    def row(self, cells: Mapping[bytes, bytes]) -> StoredRow:
        """Decode a row; inverse of `cells`. Raises KeyError if a cell of the layout is missing."""
        nulls = cells[NULLS]
        values: dict[str, Canonical] = {}
        for i, (name, qualifier, _, decode) in enumerate(self._columns):
            stored = cells[qualifier]
            values[name] = None if nulls[i >> 3] >> (i & 7) & 1 else decode(stored)
        return StoredRow(
            values=values,
            layout_id=layout_id_of(cells),
            batch=_LONG.unpack(cells[BATCH])[0],
            ts_ms=_LONG.unpack(cells[TS])[0],
        )


def layout_id_of(cells: Mapping[bytes, bytes]) -> int:
    """Return the layout id in a row's cells. Raises KeyError if there is none."""
    layout_id: int = _INT.unpack(cells[LAYOUT])[0]
    return layout_id


def document_id(row_key: bytes) -> str:
    """Return the id of a row's document: its key in hexadecimal, because a row delete contains nothing but the key."""
    return row_key.hex()
