"""Decompress events: transaction payloads of MySQL (zstd), query and rows events of MariaDB (zlib).

Memory is bounded by one inner event of at most `MAX_INFLATED` bytes: a payload is decompressed as a stream, and not
beyond the size that it declares. A larger event is an error, whose tables are then read again.
"""

from __future__ import annotations

import io
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from cdc.compression import zstd
from ingest.binlog.format.codes import HEADER_SIZE
from ingest.binlog.format.errors import CorruptBinlog, UnsupportedEvent
from ingest.binlog.format.packed import U32, length_encoded, take

# A few kilobytes can decompress to a gigabyte. Kafka accepts no record of more than 16 MB anyway.
MAX_INFLATED: Final = 256 << 20
_ZSTD: Final = 0
_PLAIN: Final = 255
_CHUNK: Final = 1 << 16
_SPLIT: Final = "its tables are read again; write such rows in smaller parts, or switch the log's compression off"
_WINDOW: Final[Mapping[int, int]] = {
    zstd.DecompressionParameter.window_log_max: 27
}  # 128 MiB: the largest window that servers use


@dataclass(frozen=True, slots=True, kw_only=True)
class Payload:
    """A compressed transaction. `compression` is 0 for zstd, 255 for none; `size` is the stated size after
    decompression (None: not stated)."""

    compression: int
    size: int | None
    data: bytes


def parse_payload(body: bytes) -> Payload:
    """Decode the body of a TRANSACTION_PAYLOAD event.

    Raises CorruptBinlog if the declared size is not that of the event.
    """
    compression, size, claimed = _PLAIN, None, None
    at = 0
    while True:
        kind, at = length_encoded(body, at)
        if kind == 0:
            break
        length, at = length_encoded(body, at)
        field, at = take(body, at, length)
        value, _ = length_encoded(field, 0)
        if kind == 1:
            claimed = value
        elif kind == 2:
            compression = value
        elif kind == 3:
            size = value
    if claimed is not None and claimed != len(body) - at:
        raise CorruptBinlog(f"a compressed transaction claims {claimed} bytes, but its event has {len(body) - at}")
    return Payload(compression=compression, size=size, data=body[at:])


def payload_events(payload: Payload) -> Iterator[bytes]:
    """Yield the events inside a payload one by one, each with header and without checksum.

    Raises CorruptBinlog for damaged data or other sizes than declared, UnsupportedEvent for another method than zstd.
    """
    if payload.compression == _PLAIN:
        source: io.BufferedIOBase | zstd.ZstdFile = io.BytesIO(payload.data)
    elif payload.compression == _ZSTD:
        source = zstd.ZstdFile(io.BytesIO(payload.data), options=_WINDOW)
    else:
        raise UnsupportedEvent(
            f"a transaction is compressed by method {payload.compression}, but only zstd is supported"
        )
    left = payload.size
    try:
        while header := _read(source, HEADER_SIZE):
            if len(header) < HEADER_SIZE:
                raise CorruptBinlog("a compressed transaction ends inside an event's header")
            size = U32(header, 9)[0]
            if not HEADER_SIZE <= size <= MAX_INFLATED:
                raise CorruptBinlog(
                    f"a compressed transaction contains an event of {size} bytes, more than {MAX_INFLATED}", _SPLIT
                )
            if left is not None and (left := left - size) < 0:
                raise CorruptBinlog(f"a compressed transaction has more than the {payload.size} bytes that it declares")
            event = _read(source, size - HEADER_SIZE, header)
            if len(event) < size:
                raise CorruptBinlog("a compressed transaction ends inside an event")
            yield event
    except (zstd.ZstdError, EOFError) as error:
        raise CorruptBinlog(f"a compressed transaction cannot be decompressed: {error}") from error
    if left:
        raise CorruptBinlog(f"a compressed transaction has {left} bytes less than the {payload.size} that it declares")


def _read(source: io.BufferedIOBase | zstd.ZstdFile, size: int, head: bytes = b"") -> bytes:
    """Return `head` and the next `size` bytes, or as many as are left.

    Memory grows with the bytes received, not with the stated size."""
    part = source.read(min(size, _CHUNK))
    parts, left = [head, part], size - len(part)
    while left and (part := source.read(min(left, _CHUNK))):
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


def _inflate(data: bytes, at: int) -> bytes:
    """Decompress MariaDB's format: a byte 0x80

    method << 4

    length bytes, the length big-endian, zlib's bytes.
    """
    header = data[at]
    if header & 0x70:
        raise UnsupportedEvent(f"an event is compressed by method {header >> 4 & 7}, but only zlib is supported")
    width = header & 7
    size = int.from_bytes(data[at + 1 : at + 1 + width], "big")
    if size > MAX_INFLATED:
        raise CorruptBinlog(f"a compressed event claims {size} bytes, more than {MAX_INFLATED}", _SPLIT)
    try:
        text = zlib.decompressobj().decompress(data[at + 1 + width :], size + 1)
    except zlib.error as error:
        raise CorruptBinlog(f"a compressed event cannot be decompressed: {error}") from error
    if len(text) != size:
        raise CorruptBinlog(f"a compressed event has {len(text)} bytes instead of {size}")
    return text


def inflate_rows(body: bytes, at: int) -> bytes:
    """Return the decompressed rows of a MariaDB compressed rows event; `at` is the offset after its bitmaps."""
    return _inflate(body, at)


def inflate_query(body: bytes, at: int) -> bytes:
    """Return the decompressed statement of a MariaDB compressed query event; `at` is its offset."""
    return _inflate(body, at)
