"""Write binlog files: create one, or copy events of a transport into one and inject further events."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType

from ingest.binlog.format.codes import EventType
from ingest.binlog.reading.events import RawEvent
from ingest.binlog.reading.position import BinlogPosition
from ingest.binlog.reading.reader import Transport
from ingest.binlog.reading.stream import EventStream
from ingest.binlog.writer.writer import BinlogWriter

# Events that belong to a file or a connection, and not to the logged changes.
_OF_THE_FILE = frozenset({EventType.FORMAT_DESCRIPTION, EventType.ROTATE, EventType.STOP, EventType.HEARTBEAT, 41})


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
    transport: Transport,
    path: str | Path,
    *,
    start: BinlogPosition | None = None,
    inject: Callable[[BinlogWriter, RawEvent], Iterable[bytes]] | None = None,
) -> int:
    """Copy the events of a transport into a new file, and return the number of copied events, without injected ones.

    The file has the version and checksum algorithm of the original, and a format description of its own; rotations,
    stops and heartbeats are not copied. `inject(writer, event)` is called before each copied event; the bytes that it
    returns are written before the event.
    """
    stream = EventStream(start, checksum=transport.checksum)
    count = 0
    output: BinlogFile | None = None
    try:
        for packet in transport.packets(start or BinlogPosition()):
            raw = stream.receive(packet)
            description = stream.description
            if output is None:
                if raw.code != EventType.FORMAT_DESCRIPTION or description is None:
                    continue
                writer = BinlogWriter(
                    server_id=description.header.server_id,
                    server_version=description.server_version,
                    checksum=bool(description.checksum),
                )
                output = BinlogFile(path, writer)
                lengths = description.post_header_lengths
                output.append(writer.begin(description.header.timestamp, lengths=lengths))
            elif raw.code not in _OF_THE_FILE:
                for data in inject(output.writer, raw) if inject else ():
                    output.append(data)
                output.append(output.writer.copy(raw))
                count += 1
    finally:
        if output is not None:
            output.close()
    return count
