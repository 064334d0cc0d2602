"""Read binlog files: `file:///…/binlog.000001`, or `…/binlog.index` for all files of a server in order; also .gz files.

Every packet is complete; otherwise CorruptBinlog is raised, with file and offset. Positions have 64 bits and are
compared with those in the events. Memory depends on the file's size, never on a length stated in it.
"""

from __future__ import annotations

import gzip
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final

from cdc.model.errors import UsageError
from ingest.binlog.format.codes import HEADER_SIZE, MAGIC, MAGIC_ENCRYPTED, EventType
from ingest.binlog.format.errors import CorruptBinlog, UnsupportedEvent
from ingest.binlog.reading.parse import HEADER
from ingest.binlog.reading.position import BinlogPosition
from ingest.binlog.reading.stream import Packet
from ingest.binlog.reading.whole import ReadBuffer

_BUFFER: Final = 1 << 20
_LARGEST: Final = (1 << 30) + HEADER_SIZE + 4
_CHUNK: Final = 1 << 24


def _open(path: Path) -> tuple[BinaryIO, int | None]:
    try:
        with path.open("rb") as probe:
            compressed = probe.read(2) == b"\x1f\x8b"
        if compressed:
            return gzip.open(path, "rb"), None  # type: ignore[return-value]  # GzipFile reads as a BinaryIO does
        return path.open("rb", buffering=_BUFFER), os.path.getsize(path)
    except OSError as error:
        raise UsageError(
            f"{path} cannot be read: {error.strerror}", "specify a binlog file or its .index file"
        ) from error


def _read(source: BinaryIO, size: int, where: str) -> bytes:
    try:
        if size <= _CHUNK:
            return source.read(size)
        parts: list[bytes] = []
        while size > 0 and (part := source.read(min(size, _CHUNK))):
            parts.append(part)
            size -= len(part)
        return b"".join(parts)
    except (EOFError, gzip.BadGzipFile) as error:
        raise CorruptBinlog(f"the compressed file ends or breaks: {error}", where=where) from error


def _joined(source: BinaryIO, begin: bytes, length: int, name: str, at: int) -> bytes:
    """Read an event that spans several blocks. (A separate function, so that no local variable keeps a large event
    alive.)"""
    rest = _read(source, length - len(begin), f"{name}:{at}")
    if len(begin) + len(rest) != length:
        raise CorruptBinlog(f"the file ends inside an event of {length} bytes", where=f"{name}:{at}")
    return begin + rest


class FileTransport:
    """The packets of one file, or of all files of an index. It can be started again at another file and position."""

    checksum = 0
    reconnects = False
    selects_gtids = False

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        self.buffer = ReadBuffer(0)
        self._source: BinaryIO | None = None

    def files(self) -> list[Path]:
        """Return the files in order. Those of an index must be in the index's own folder.

        Raises UsageError if the index cannot be read."""
        if self._path.suffix != ".index":
            return [self._path]
        try:
            names = self._path.read_text().split()
        except OSError as error:
            raise UsageError(
                f"{self._path} cannot be read: {error.strerror}", "specify a binlog's .index file"
            ) from error
        return [self._path.parent / Path(name).name for name in names]

    def packets(self, start: BinlogPosition) -> Iterator[Packet]:
        """Yield all packets from `start`. If it is inside a file, the format description of the file comes first.

        Raises UsageError for a start that no file has."""
        files = self.files()
        names = [path.name for path in files]
        first = 0
        if start.file:
            if start.file not in names:
                raise UsageError(f"{start.file} is not among {', '.join(names[:5])}", "start at one of these files")
            first = names.index(start.file)
        elif self._path.suffix == ".index" and start.position > 4:
            raise UsageError("a position without a file", "write it as FILE:POSITION")
        for path in files[first:]:
            source, size = self._opened(path)
            with source:
                yield from self._events(source, size, path.name, start.position if path is files[first] else 4)

    def wait(self, attempt: int) -> None:
        """Return at once, because waiting does not help with files."""

    def close(self) -> None:
        """Close the file, so that `packets` ends."""
        if self._source is not None:
            self._source.close()
            self._source = None

    def _opened(self, path: Path) -> tuple[BinaryIO, int | None]:
        """Open a file, check the magic number, and return the file after it with its size, if known."""
        source, size = _open(path)
        self._source = source
        magic = source.read(4)
        if magic != MAGIC:
            source.close()
        if magic == MAGIC_ENCRYPTED:
            raise UnsupportedEvent(
                "the file is encrypted by MySQL", "read it over a connection to the server", where=f"{path.name}:0"
            )
        if magic != MAGIC:
            raise CorruptBinlog("this is not a binlog: it does not begin with 0xFE 'bin'", where=f"{path.name}:0")
        return source, size

    def _events(self, source: BinaryIO, size: int | None, name: str, position: int) -> Iterator[Packet]:
        """Yield the events of a file, which is read in blocks."""
        at, base, block, positions_match = 4, 0, b"", True
        buffer = self.buffer
        buffer.file = name
        while True:
            if len(block) - base < HEADER_SIZE:
                block, base = block[base:] + _read(source, _BUFFER, f"{name}:{at}"), 0
                if len(block) < HEADER_SIZE:
                    if block:
                        raise CorruptBinlog("the file ends inside an event's header", where=f"{name}:{at}")
                    return
            _, code, _, length, stated, _ = HEADER.unpack_from(block, base)
            if at == 4 and code != EventType.FORMAT_DESCRIPTION:
                raise CorruptBinlog(
                    "the file does not begin with a format description", "it is a fragment", where=f"{name}:4"
                )
            if not HEADER_SIZE <= length <= _LARGEST or (size is not None and at + length > size):
                what = "ends inside an event" if HEADER_SIZE <= length <= _LARGEST else "is damaged"
                raise CorruptBinlog(f"the file {what}: the next one claims {length} bytes", where=f"{name}:{at}")
            end = at + length
            if at == 4:
                # Relay logs and copied streams keep their original positions.
                positions_match = stated == end
            elif stated != end & 0xFFFFFFFF and stated and positions_match:
                raise CorruptBinlog(
                    f"an event at {at} claims to end at {stated}",
                    "events were lost, repeated or moved in this file",
                    where=f"{name}:{at}",
                )
            buffer.position = end
            if base + length <= len(block):
                buffer.block, buffer.at = block, base + length
                yield block[base : base + length], name, at, end
            else:
                rest, block = block[base:], b""
                buffer.block, buffer.at = block, 0
                yield _joined(source, rest, length, name, at), name, at, end
            base, at = buffer.at, buffer.position
            if at < position and code == EventType.FORMAT_DESCRIPTION:
                if size is not None and position > size:
                    raise UsageError(f"{name} ends at {size}, before position {position}", "start inside the file")
                source.seek(position)
                at, base, block = position, 0, b""
