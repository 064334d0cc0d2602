"""HBase's RPC on the wire, without a socket: frames, messages, and cells as KeyValueCodecWithTags writes them.

A frame is a 4-byte big-endian length, then that many bytes: a varint-delimited header, a varint-delimited message and
the cell block. A cell is `total, key length, value length` (4 bytes each), then row length (2) and row, family length
(1) and family, qualifier, timestamp (8), type (1), value, and tags up to `total`. Source: hbase-common KeyValue,
hbase-client IPCUtil; the messages are proto/wire.proto.
"""

from __future__ import annotations

import struct
from typing import NamedTuple, TypeVar

from google.protobuf.message import DecodeError, Message

from cdc.model.errors import Skippable

PREAMBLE = b"HBas\x00\x50"  # version 0, simple authentication
PUT, DELETE, DELETE_FAMILY_VERSION, DELETE_COLUMN, DELETE_FAMILY = 4, 8, 10, 12, 14
# HBase refuses larger requests itself (hbase.ipc.max.request.size), so a greater length does not come from HBase.
LARGEST_FRAME = 256 << 20
METAFAMILY = b"METAFAMILY"

_LENGTH = struct.Struct(">I")
_CELL_HEAD = struct.Struct(">iii")
_SHORT, _LONG = struct.Struct(">H"), struct.Struct(">q")

M = TypeVar("M", bound=Message)


class WireError(Skippable):
    """The client does not use HBase's RPC as expected. Its connection is closed; the others continue."""


class Cell(NamedTuple):
    """One put cell or delete marker; `timestamp` in milliseconds, `type` one of the five constants above."""

    row: bytes
    family: bytes
    qualifier: bytes
    timestamp: int
    type: int
    value: bytes


class Write(NamedTuple):
    """Adjacent cells in the log with the same row, family, timestamp and type: usually one put of a whole row.

    `cells` gives the value by qualifier. Of two cells with one qualifier the later one counts, as in HBase."""

    row: bytes
    family: bytes
    timestamp: int
    type: int
    cells: dict[bytes, bytes]


def varint(number: int) -> bytes:
    """Return Protobuf's variable-length encoding of a non-negative integer."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Return the integer at offset `at`, and the offset after it. Raises WireError if the integer is incomplete."""
    value = shift = 0
    for end in range(at, min(at + 10, len(data))):
        value |= (data[end] & 0x7F) << shift
        if data[end] < 0x80:
            return value, end + 1
        shift += 7
    raise WireError("a varint that does not end")


def delimited(message: Message) -> bytes:
    """Return a Protobuf message preceded by its length."""
    body = message.SerializeToString()
    return varint(len(body)) + body


def read_delimited(data: bytes, at: int, kind: type[M]) -> tuple[M, int]:
    """Return the Protobuf message at offset `at`, and the offset after it. Raises WireError if it is invalid."""
    length, start = read_varint(data, at)
    end = start + length
    if end > len(data):
        raise WireError(f"a message of {length} bytes in a frame of {len(data)}")
    try:
        return kind.FromString(data[start:end]), end
    except DecodeError as error:
        raise WireError(f"not a {kind.__name__}: {error}") from error


def frame(*parts: bytes) -> bytes:
    """Return the parts preceded by their total length."""
    body = b"".join(parts)
    return _LENGTH.pack(len(body)) + body


class Frames:
    """Splits a stream of bytes into frames. The caller feeds received bytes and takes complete frames."""

    def __init__(self) -> None:
        self._data = bytearray()

    def __len__(self) -> int:
        """Return the number of bytes that are not a complete frame yet."""
        return len(self._data)

    def feed(self, data: bytes) -> None:
        """Add bytes that the connection has received."""
        self._data += data

    def take(self, length: int) -> bytes | None:
        """Return the next `length` bytes without treating them as a frame, or None until they have arrived."""
        if len(self._data) < length:
            return None
        taken = bytes(self._data[:length])
        del self._data[:length]
        return taken

    def next(self) -> bytes | None:
        """Return the next frame without its length; None until it is complete. Raises WireError if it is too long."""
        if len(self._data) < 4:
            return None
        length = _LENGTH.unpack_from(self._data)[0]
        if length > LARGEST_FRAME:
            raise WireError(f"a frame of {length} bytes")
        if len(self._data) < 4 + length:
            return None
        taken = bytes(memoryview(self._data)[4 : 4 + length])
        del self._data[: 4 + length]
        return taken


def count_cells(data: bytes, at: int) -> int:
    """Return the number of cells between an offset and the end of a frame. Raises WireError if the last one is
    incomplete."""
    total, size, count = _LENGTH.unpack_from, len(data), 0
    try:
        while at < size:
            at += 4 + total(data, at)[0]
            count += 1
    except struct.error as error:
        raise WireError(f"a cell block cut short: {error}") from error
    if at != size:
        raise WireError("a cell longer than its block")
    return count


def read_writes(data: bytes, at: int, count: int) -> tuple[list[Write], int]:
    """Decode `count` cells from offset `at`, group them into writes, and return the offset after them.

    Raises WireError if the bytes are not cells. Within a put of a whole row only qualifier and value differ. So the
    rest of each key is compared as bytes and not decoded again."""
    writes: list[Write] = []
    # Local names: the inner loop runs for every cell of the table, and attribute look-ups are a third of its time.
    head, size, starts = _CELL_HEAD.unpack_from, len(data), data.startswith
    try:
        while count > 0:
            total, key_length, value_length = head(data, at)
            key = at + 12
            row_end = key + 2 + _SHORT.unpack_from(data, key)[0]
            qualifier = row_end + 1 + data[row_end]
            key_end = key + key_length
            at += 4 + total
            if at > size or key_end + value_length > at or qualifier > key_end - 9:
                raise WireError("a cell longer than its block")
            prefix, batch_timestamp = data[key:qualifier], data[key_end - 9 : key_end]
            skipped = 12 + len(prefix)
            cells = {data[qualifier : key_end - 9]: data[key_end : key_end + value_length]}
            count -= 1
            while count > 0 and starts(prefix, at + 12):
                total, key_length, value_length = head(data, at)
                key_end = at + 12 + key_length
                if not starts(batch_timestamp, key_end - 9):
                    break
                following = at + 4 + total
                if following > size or key_end + value_length > following or at + skipped > key_end - 9:
                    raise WireError("a cell longer than its block")
                cells[data[at + skipped : key_end - 9]] = data[key_end : key_end + value_length]
                at = following
                count -= 1
            row_length = row_end - key - 2
            writes.append(
                Write(
                    prefix[2 : 2 + row_length],
                    prefix[3 + row_length :],
                    _LONG.unpack_from(batch_timestamp)[0],
                    batch_timestamp[8],
                    cells,
                )
            )
    except (struct.error, IndexError) as error:
        raise WireError(f"a cell block cut short: {error}") from error
    return writes, at


def write_cells(cells: list[Cell]) -> bytes:
    """Encode cells, without tags, as a cell block. The inverse of `read_writes`, for tests and simulations."""
    out = bytearray()
    for cell in cells:
        key = b"".join(
            (
                _SHORT.pack(len(cell.row)),
                cell.row,
                bytes([len(cell.family)]),
                cell.family,
                cell.qualifier,
                _LONG.pack(cell.timestamp),
                bytes([cell.type]),
            )
        )
        out += _CELL_HEAD.pack(8 + len(key) + len(cell.value), len(key), len(cell.value)) + key + cell.value
    return bytes(out)
