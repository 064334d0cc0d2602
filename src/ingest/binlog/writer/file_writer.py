"""Write binlog files: create one, copy events of a transport into one and inject further events, or insert events into
an existing file."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType

from ingest.binlog.format.codes import FLAG_IN_USE, MAGIC, EventType
from ingest.binlog.format.errors import UnsupportedEvent
from ingest.binlog.reading.events import RawEvent
from ingest.binlog.reading.position import BinlogPosition
from ingest.binlog.reading.reader import Transport
from ingest.binlog.reading.stream import EventStream
from ingest.binlog.writer.writer import BinlogWriter

# Events that belong to a file or a connection, and not to the logged changes.
_OF_THE_CONNECTION = frozenset({EventType.FORMAT_DESCRIPTION, EventType.HEARTBEAT, 41})
_OF_THE_FILE = _OF_THE_CONNECTION | {EventType.ROTATE, EventType.STOP}
Injection = Callable[[BinlogWriter, RawEvent], Iterable[bytes]]


class BinlogFile:
    """A new binlog file, which the context manager closes. `writer` encodes the events. Raises FileExistsError if the
    file exists."""

    def __init__(self, path: str | Path, writer: BinlogWriter) -> None:
        self.writer = writer
        # Never overwrite an existing binlog.
        self._file = Path(path).open("xb")  # noqa: SIM115  # closed by close(), which __exit__ calls

    def append(self, data: bytes) -> None:
        """Append bytes from `writer`, in the order in which it returned them."""
        self._file.write(data)

    def __enter__(self) -> BinlogFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def copy_binlog(
    transport: Transport, path: str | Path, *, start: BinlogPosition | None = None, inject: Injection | None = None
) -> int:
    """Copy the events of a transport into a new file, and return the number of copied events, without injected ones.

    The file has the version and checksum algorithm of the original, and a format description of its own; rotations,
    stops and heartbeats are not copied. `inject(writer, event)` is called before each copied event; the bytes that it
    returns are written before the event.
    """
    return _copy(transport, path, start or BinlogPosition(), inject, _OF_THE_FILE)


def insert_events(transport: Transport, path: str | Path, inject: Injection) -> int:
    """Insert events into an existing file, and return the number of its former events. `transport` reads the file.

    `inject` is that of `copy_binlog`, called also before the rotation or stop at the end. Positions of later events
    grow, and GTIDs stay. The file is replaced at once when its successor is on the disk; a reader that has it open goes
    on with the former one. Raises UnsupportedEvent, and changes nothing, if the file is compressed or encrypted, or if
    a server has not closed it.
    """
    target = Path(path)
    with target.open("rb") as former:
        if former.read(len(MAGIC)) != MAGIC:
            raise UnsupportedEvent(f"{target} is compressed, encrypted or no binlog", "insert into a plain binlog file")
    made = target.with_name(f"{target.name}.inserting")
    made.unlink(missing_ok=True)  # of a process that was killed
    try:
        count = _copy(transport, made, BinlogPosition(), inject, _OF_THE_CONNECTION, closed=True)
        made.chmod(target.stat().st_mode & 0o777)
        with made.open("rb") as written:
            os.fsync(written.fileno())
        made.replace(target)
    finally:
        made.unlink(missing_ok=True)
    return count


def _copy(
    transport: Transport, path: str | Path, start: BinlogPosition, inject: Injection | None,
    omitted: frozenset[int], *, closed: bool = False,
) -> int:  # fmt: skip
    """Copy events except for `omitted` ones. `closed`: raise UnsupportedEvent for a file that a server writes."""
    stream = EventStream(start, checksum=transport.checksum)
    count = 0
    output: BinlogFile | None = None
    try:
        for packet in transport.packets(start):
            raw = stream.receive(packet)
            description = stream.description
            if output is None:
                if raw.code != EventType.FORMAT_DESCRIPTION or description is None:
                    continue
                if closed and description.header.flags & FLAG_IN_USE:
                    what = f"{raw.file} was not closed by its server"
                    raise UnsupportedEvent(what, "run FLUSH BINARY LOGS, and choose a closed file")
                writer = BinlogWriter(
                    server_id=description.header.server_id,
                    server_version=description.server_version,
                    checksum=bool(description.checksum),
                )
                output = BinlogFile(path, writer)
                lengths, made = description.post_header_lengths, description.created if closed else None
                output.append(writer.begin(description.header.timestamp, created=made, lengths=lengths))
            elif raw.code not in omitted:
                for data in inject(output.writer, raw) if inject else ():
                    output.append(data)
                output.append(output.writer.copy(raw))
                count += 1
    finally:
        if output is not None:
            output.close()
    return count
