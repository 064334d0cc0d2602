"""Damaged binlogs cause no hang, no excessive memory, no row with a wrong checksum, and no foreign error."""

from __future__ import annotations

import gzip
import random
import resource
import struct
import time
import zlib
from pathlib import Path

import pytest

from cdc.model.errors import TailorbirdError
from ingest.binlog import BinlogReader, RowBatch
from ingest.binlog.transports.file_transport import FileTransport

DATA = Path(__file__).resolve().parents[2] / "data" / "binlogs" / "pairs"
NAMES = ["dbz_connector_test@m10", "dbz_json_test@m10", "dbz_default_value@m10", "dbz_geometry_test_8@m10"]


def original(name: str) -> bytes:
    return gzip.decompress((DATA / f"{name}.binlog.gz").read_bytes())


def event_starts(data: bytes) -> list[int]:
    starts, at = [], 4
    while at + 19 <= len(data):
        starts.append(at)
        at += struct.unpack_from("<I", data, at + 9)[0]
    return starts


def reseal(data: bytearray, start: int) -> None:
    """Give the event at `start` a checksum that matches its bytes."""
    size = struct.unpack_from("<I", data, start + 9)[0]
    if size >= 23 and start + size <= len(data):
        crc = zlib.crc32(data[start : start + size - 4])
        struct.pack_into("<I", data, start + size - 4, crc)


def rows_of(path: Path) -> tuple[list[str], str]:
    """Return the rows, and the error that ended them ("" for a clean end)."""
    rows: list[str] = []
    try:
        for change in BinlogReader(FileTransport(path)).changes():
            if isinstance(change, RowBatch):
                rows += [repr(row) for row in change.rows]
    except TailorbirdError as error:
        return rows, str(error)
    return rows, ""


def is_prefix(rows: list[str], whole: list[str]) -> bool:
    return rows == whole[: len(rows)]


@pytest.mark.parametrize("name", NAMES)
def test_flipped_bits_never_yield_a_wrong_row(name: str, tmp_path: Path) -> None:
    """A flipped bit anywhere: the rows before it are read, and the damaged event is reported with file and offset."""
    rng = random.Random(name)
    data = original(name)
    path = tmp_path / "flipped"
    path.write_bytes(data)
    whole, error = rows_of(path)
    assert not error
    first = event_starts(data)[1]
    for _ in range(150):
        at = rng.randrange(first, len(data))
        broken = bytearray(data)
        broken[at] ^= 1 << rng.randrange(8)
        path.write_bytes(broken)
        rows, error = rows_of(path)
        assert error.startswith("flipped:"), (at, error)
        assert is_prefix(rows, whole), at


@pytest.mark.parametrize("name", NAMES)
def test_damage_with_a_valid_checksum_ends_in_our_error_or_in_rows(name: str, tmp_path: Path) -> None:
    """It may decode to something, but only our own errors are raised, quickly, within bounds."""
    rng = random.Random(name + "resealed")
    data = original(name)
    starts = event_starts(data)[1:]
    path = tmp_path / "resealed"
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(400):
        broken = bytearray(data)
        start = rng.choice(starts)
        size = struct.unpack_from("<I", data, start + 9)[0]
        for _ in range(rng.randrange(1, 4)):
            place = start + rng.choice((4, rng.randrange(19, max(20, size - 4))))
            broken[min(place, len(broken) - 1)] = rng.choice((0, 0xFF, 0x7F, 0x80, rng.randrange(256)))
        reseal(broken, start)
        path.write_bytes(broken)
        begun = time.monotonic()
        rows_of(path)
        assert time.monotonic() - begun < 20
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 512 << 10, f"{grown} KiB more"


def test_truncation_at_every_kind_of_position(tmp_path: Path) -> None:
    """A truncated file yields the rows before the cut; an end between events is a clean one."""
    data = original("dbz_decimal_test@m10")
    path = tmp_path / "torn"
    path.write_bytes(data)
    whole, _ = rows_of(path)
    starts = set(event_starts(data))
    for end in range(5, len(data)):
        path.write_bytes(data[:end])
        rows, error = rows_of(path)
        assert is_prefix(rows, whole)
        assert (end in starts and end > 4) == (not error), (end, error)


@pytest.mark.parametrize("length", [0, 1, 18, 19, 22, 0x7FFFFFFF, 0xFFFFFFFF, 1 << 30])
def test_impossible_lengths_are_refused_at_once(length: int, tmp_path: Path) -> None:
    """A length is always checked: neither a loop at zero nor an allocation of gigabytes."""
    data = bytearray(original("northwind@m97"))
    starts = event_starts(bytes(data))
    path = tmp_path / "lengths"
    for start in (starts[1], starts[len(starts) // 2]):
        broken = bytearray(data)
        struct.pack_into("<I", broken, start + 9, length)
        path.write_bytes(broken)
        begun = time.monotonic()
        _, error = rows_of(path)
        assert f"lengths:{start}" in error
        assert time.monotonic() - begun < 10


def test_repeated_or_missing_events_are_noticed(tmp_path: Path) -> None:
    """A repeated event, or a missing TABLE_MAP, is an error; its rows are not returned twice or at all."""
    data = original("northwind@m97")
    starts = [*event_starts(data), len(data)]
    path = tmp_path / "moved"
    path.write_bytes(data)
    whole, _ = rows_of(path)
    for i in range(2, len(starts) - 1, len(starts) // 20):
        begin, end = starts[i], starts[i + 1]
        path.write_bytes(data[:end] + data[begin:end] + data[end:])
        rows, error = rows_of(path)
        assert "claims to end at" in error
        assert is_prefix(rows, whole)
    moved = 0
    for i, begin in enumerate(starts[:-1]):
        if data[begin + 4] != 19 or i % 7:
            continue
        end = starts[i + 1]
        rest = bytearray(data[end:])
        # Positions as a server would have written them without the event, so that only the map is missing.
        at = 0
        while at + 19 <= len(rest):
            size, stated = struct.unpack_from("<I", rest, at + 9)[0], struct.unpack_from("<I", rest, at + 13)[0]
            if stated:
                struct.pack_into("<I", rest, at + 13, stated - (end - begin))
            reseal(rest, at)
            at += size
        path.write_bytes(data[:begin] + bytes(rest))
        rows, error = rows_of(path)
        assert "without its TABLE_MAP" in error, error
        assert is_prefix(rows, whole)
        moved += 1
        if moved == 4:
            break
    assert moved == 4
