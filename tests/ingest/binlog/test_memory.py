"""Memory depends on the size of one event, never on a file, a transaction or a claimed length."""

from __future__ import annotations

import struct
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

from cdc.compression import zstd
from ingest.binlog.format.codes import ColumnType as T
from ingest.binlog.format.columns import LoggedColumn
from ingest.binlog.format.compressed import parse_payload, payload_events
from ingest.binlog.format.errors import CorruptBinlog
from ingest.binlog.rows.convert import inflate
from ingest.binlog.writer.writer import BinlogWriter

NOW = 1_700_000_000
ID = LoggedColumn(index=0, name="id", type=T.LONG, named=True, unsigned=False)
BLOB = LoggedColumn(index=1, name="data", type=T.BLOB, named=True, size=4, charset="binary")

CHILD = """
import sys
from ingest.binlog import BinlogReader, RowBatch
from ingest.binlog.transports.file_transport import FileTransport
rows = 0
for change in BinlogReader(FileTransport(sys.argv[1])).changes():
    if isinstance(change, RowBatch):
        rows += len(change.rows)
    del change
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(rows, int(peak.split()[1]) // 1024)
"""


def read_in_a_process(path: Path) -> tuple[int, int]:
    """Return (rows, peak MiB) of a process that only reads the file."""
    done = subprocess.run([sys.executable, "-c", CHILD, str(path)], capture_output=True, text=True, check=True)
    rows, peak = done.stdout.split()
    return int(rows), int(peak)


@pytest.mark.long
def test_a_million_rows_in_one_transaction(tmp_path: Path) -> None:
    """A transaction of a million rows needs no more memory than one of its events."""
    writer = BinlogWriter()
    path = tmp_path / "long"
    with path.open("wb") as file:
        file.write(writer.begin(NOW) + writer.anonymous(NOW) + writer.query("d", "BEGIN", NOW))
        file.write(writer.table_map(1, "d", "t", [ID, BLOB], NOW))
        rows = [{"id": n, "data": b"x" * 20} for n in range(2000)]
        body = writer.rows("insert", 1, [ID, BLOB], rows, NOW, ends_statement=False)
        file.write(body)
        for _ in range(499):
            file.write(writer.event(30, body[19:-4], NOW))
        file.write(writer.xid(1, NOW))
    rows_read, peak = read_in_a_process(path)
    assert rows_read == 1_000_000
    assert peak < 150, f"{peak} MiB"


@pytest.mark.long
def test_rows_of_64_mebibytes(tmp_path: Path) -> None:
    """Both images of an updated row of 64 MiB fit into half a gibibyte."""
    writer = BinlogWriter()
    path = tmp_path / "large"
    old, new = {"id": 1, "data": b"a" * (64 << 20)}, {"id": 1, "data": b"b" * (64 << 20)}
    with path.open("wb") as file:
        file.write(writer.begin(NOW) + writer.anonymous(NOW) + writer.query("d", "BEGIN", NOW))
        file.write(writer.table_map(1, "d", "t", [ID, BLOB], NOW))
        file.write(writer.rows("update", 1, [ID, BLOB], [(old, new)], NOW))
        file.write(writer.xid(1, NOW))
    rows_read, peak = read_in_a_process(path)
    assert rows_read == 1
    assert peak < 512, f"{peak} MiB"


def test_compressed_transactions_are_inflated_as_a_stream(tmp_path: Path) -> None:
    """A payload that inflates to 400 MB is read event by event."""
    inner = BinlogWriter(checksum=False)
    rows = inner.rows("insert", 1, [ID, BLOB], [{"id": n, "data": b"x" * 4000} for n in range(100)], NOW)
    head = inner.query("d", "BEGIN", NOW) + inner.table_map(1, "d", "t", [ID, BLOB], NOW)
    compressor = zstd.ZstdCompressor()
    parts = [compressor.compress(head)]
    parts += [compressor.compress(rows) for _ in range(1000)]
    parts += [compressor.compress(inner.xid(1, NOW)), compressor.flush()]
    packed = b"".join(parts)
    body = b"\x02\x01\x00" + b"\x01\x09\xfe" + struct.pack("<Q", len(packed)) + b"\x00" + packed
    writer = BinlogWriter(server_version="8.0.36")
    path = tmp_path / "compressed"
    path.write_bytes(writer.begin(NOW) + writer.anonymous(NOW) + writer.event(40, body, NOW))
    rows_read, peak = read_in_a_process(path)
    assert rows_read == 100_000
    assert peak < 150, f"{peak} MiB"


def test_a_decompression_bomb_is_refused(tmp_path: Path) -> None:
    """The claimed and the actual size of a compressed event are bounded; a false claim raises our own error."""
    lie = b"\x84" + (1 << 31).to_bytes(4, "big") + zlib.compress(b"x" * 1000)
    writer = BinlogWriter(server_version="10.11.6-MariaDB-log")
    data = [writer.begin(NOW), writer.event(162, struct.pack("<QIB", 1, 0, 0) + bytes(6), NOW)]
    data.append(writer.table_map(1, "d", "t", [ID, BLOB], NOW))
    data.append(writer.event(166, (1).to_bytes(6, "little") + b"\0\0" + b"\x02\xff" + lie, NOW))
    path = tmp_path / "bomb"
    path.write_bytes(b"".join(data))
    done = subprocess.run([sys.executable, "-c", CHILD, str(path)], capture_output=True, text=True, check=False)
    assert "a compressed event claims 2147483648 bytes" in done.stderr


def payload(packed: bytes, declared: int | None) -> bytes:
    """Return the body of a compressed transaction that declares a size."""
    size = b"" if declared is None else b"\x03\x09\xfe" + struct.pack("<Q", declared)
    return b"\x02\x01\x00" + size + b"\x01\x09\xfe" + struct.pack("<Q", len(packed)) + b"\x00" + packed


@pytest.mark.parametrize(
    ("size", "declared", "error"),
    [
        (1 << 30, None, "more than 268435456"),
        (1 << 30, 1 << 30, "more than 268435456"),
        (200 << 20, 1000, "more than the 1000 bytes that it declares"),
    ],
)
def test_a_few_kilobytes_do_not_become_gigabytes(size: int, declared: int | None, error: str, tmp_path: Path) -> None:
    """The bytes exist, so only the limits stop them: that of an event, and the size that the transaction declares."""
    header = struct.pack("<IBIIIH", NOW, 30, 1, size, 0, 0)
    compressor = zstd.ZstdCompressor()
    part = b"\0" * (1 << 20)
    packed = b"".join(
        [compressor.compress(header), *(compressor.compress(part) for _ in range(300)), compressor.flush()]
    )
    body = payload(packed, declared)
    assert len(body) < 100_000
    writer = BinlogWriter(server_version="8.0.36")
    path = tmp_path / "bomb"
    path.write_bytes(writer.begin(NOW) + writer.anonymous(NOW) + writer.event(40, body, NOW))
    child = """
from ingest.binlog import BinlogReader
from ingest.binlog.format.errors import CorruptBinlog
from ingest.binlog.transports.file_transport import FileTransport
import sys
try:
    for change in BinlogReader(FileTransport(sys.argv[1])).changes():
        pass
except CorruptBinlog as error:
    print(error)
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(int(peak.split()[1]) // 1024)
"""
    done = subprocess.run([sys.executable, "-c", child, str(path)], capture_output=True, text=True, check=True)
    *said, peak = done.stdout.splitlines()
    assert error in said[0]
    assert int(peak) < 100, f"{peak} MiB"


@pytest.mark.parametrize(("more", "error"), [(-1, "more than"), (0, ""), (1, "1 bytes less")])
def test_a_compressed_transaction_has_the_size_that_it_declares(more: int, error: str) -> None:
    inner = BinlogWriter(checksum=False)
    content = inner.query("d", "BEGIN", NOW) + inner.xid(1, NOW)
    events = payload_events(parse_payload(payload(zstd.compress(content), len(content) + more)))
    if error:
        with pytest.raises(CorruptBinlog, match=error):
            list(events)
    else:
        assert b"".join(events) == content
    assert b"".join(payload_events(parse_payload(payload(zstd.compress(content), None)))) == content


def test_a_compressed_value_is_bounded() -> None:
    """A value of a COMPRESSED column claims its size, too. More bytes than that are not decompressed."""
    bomb = zlib.compress(b"\0" * (10 << 20), wbits=-15)
    with pytest.raises(ValueError, match="more than 268435456"):
        inflate(b"\x8c" + (300 << 20).to_bytes(4, "big") + bomb)
    assert inflate(b"\x8c" + (10 << 20).to_bytes(4, "big") + bomb) == b"\0" * (10 << 20)
