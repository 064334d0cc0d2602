"""Coverage-guided fuzzing of the decoder: `make fuzz` (five minutes by default).

An input is a list of events (type, length, body) that get valid headers; the stream reads them as if a server had sent
them. Only the library's own errors may be raised. The same events in a file are read on the fast and on the general
path, whose results must be equal. Seeds are the events of the sample binlogs.
"""

from __future__ import annotations

import gzip
import io
import struct
import sys
from pathlib import Path
from typing import Any

import atheris

with atheris.instrument_imports():
    from cdc.model.errors import TailorbirdError
    from ingest.binlog import BinlogPosition, BinlogReader, EventStream, Flavour, RowBatch, StreamOptions
    from ingest.binlog.format.codes import ROWS_EVENTS
    from ingest.binlog.format.server_version import server_version_of
    from ingest.binlog.reading.effects import changes_rows, effects
    from ingest.binlog.reading.jsonl import JsonLines
    from ingest.binlog.transports.file_transport import FileTransport
    from ingest.binlog.writer.writer import BinlogWriter

DATA = Path(__file__).resolve().parents[2] / "data" / "binlogs"
HEADER = struct.Struct("<IBIIIH")
SMALL = 60_000


def seeds(folder: Path) -> None:
    """Write the sample binlogs' events in the fuzzer's format."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in sorted(DATA.rglob("*.gz")):
        data = gzip.decompress(path.read_bytes()) if not path.name.endswith(".json.gz") else b""
        if data[:4] != b"\xfebin":
            continue
        version = data[4 + 19 + 2 : 4 + 19 + 52]
        checksum = 4 if data[4 + 9] and b"5.1" not in version and b"5.5" not in version[:4] else 0
        parts, at, total = [bytes((b"MariaDB" in version,))], 4, 0
        while at + 19 <= len(data) and total < SMALL:
            code, size = data[at + 4], struct.unpack_from("<I", data, at + 9)[0]
            body = data[at + 19 : at + size - checksum]
            if code != 15:
                parts.append(struct.pack("<BH", code, min(len(body), 65535)) + body[:65535])
                total += len(body)
            at += max(size, 19)
        (folder / path.name).write_bytes(b"".join(parts))


class InMemory(FileTransport):
    """A binlog file in memory."""

    def __init__(self, data: bytes) -> None:
        super().__init__("fuzz")
        self._data = data

    def _opened(self, path: Path) -> tuple[Any, int]:
        return io.BytesIO(self._data[4:]), len(self._data)


def read(data: bytes, flavour: Flavour, *, fast: bool) -> tuple[list[str], str]:
    """Return the output of a reader, and its final error."""
    reader = BinlogReader(InMemory(data), None, StreamOptions(flavour=flavour))
    if not fast:
        reader.whole.changes = lambda buffer: iter(())  # type: ignore[method-assign]  # the general way only
    found: list[str] = []
    try:
        for change in reader.changes():
            rows = change.rows if isinstance(change, RowBatch) else ""
            found.append(f"{type(change).__name__} {rows!r} {change.raw!r} {reader.checkpoint}")
    except TailorbirdError as error:
        return found, str(error)
    return found, ""


def one_input(data: bytes) -> None:
    if not data:
        return
    flags = data[0]
    flavour = Flavour(
        rows="tuple" if flags & 2 else "dict",
        json="text" if flags & 4 else "value",
        unknown_sign="signed" if flags & 8 else "refuse",
    )
    stream = EventStream(BinlogPosition(), StreamOptions(flavour=flavour))
    stream.server = server_version_of("10.11.6-MariaDB" if flags & 1 else "8.0.36")
    lines = JsonLines()
    writer = BinlogWriter(server_version="10.11.6-MariaDB" if flags & 1 else "8.0.36")
    file = [writer.begin(0)]
    at = 1
    while at + 3 <= len(data):
        code, size = struct.unpack_from("<BH", data, at)
        body = data[at + 3 : at + 3 + size]
        at += 3 + size
        file.append(writer.event(code, body, 0))
        packet = HEADER.pack(0, code, 1, 19 + len(body), 100, 0) + body
        try:
            raw = stream.receive((packet, "fuzz", at, at + 1))
            inner = stream.unfold(raw) if code == 40 else [raw]
            for event in inner:
                stream.observe(event)
                stream.typed(event)
                if event.code == 19:
                    stream.map_table(event)
                elif event.code in ROWS_EVENTS:
                    batch = stream.batch(event, stream.decoder_of(event))
                    if not flags & 2:
                        for _ in lines.lines(batch):
                            pass
        except TailorbirdError:
            pass
    whole = b"".join(file)
    fast, general = read(whole, flavour, fast=True), read(whole, flavour, fast=False)
    if fast != general:
        raise AssertionError(f"the fast way differs: {fast} {general}")
    text = data[:2000].decode("utf-8", "replace")
    effects("d", text)
    changes_rows(text)


def main() -> None:
    corpus = Path(sys.argv[1])
    seeds(corpus)
    atheris.Setup([sys.argv[0], str(corpus), *sys.argv[2:]], one_input)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
