"""A reader that dies anywhere and resumes at its checkpoint returns every row exactly once."""

from __future__ import annotations

import gzip
import json
import random
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from ingest.binlog import BinlogPosition, BinlogReader, RowBatch
from ingest.binlog.format.gtid import GtidSet, MariaGtidSet
from ingest.binlog.transports.file_transport import FileTransport

DATA = Path(__file__).resolve().parents[2] / "data" / "binlogs" / "pairs"


@pytest.fixture(scope="module", params=["sakila@m97", "northwind@m10"])
def binlog(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An uncompressed sample, so that seeking costs nothing."""
    path: Path = tmp_path_factory.mktemp("resume") / "binlog.000001"
    path.write_bytes(gzip.decompress((DATA / f"{request.param}.binlog.gz").read_bytes()))
    return path


def batches(reader: BinlogReader) -> list[str]:
    return [repr(change.rows) for change in reader.changes() if isinstance(change, RowBatch)]


@pytest.mark.long
@pytest.mark.parametrize("by_gtid", [True, False], ids=["gtid", "position"])
def test_two_hundred_deaths_lose_and_repeat_nothing(binlog: Path, by_gtid: bool) -> None:
    """Killed after any number of batches, 200 times: the pieces together equal one uninterrupted run."""
    whole = batches(BinlogReader(FileTransport(binlog)))
    rng = random.Random(11)
    pieces: list[str] = []
    at = BinlogPosition()
    inside = 0
    for _ in range(200):
        reader = BinlogReader(FileTransport(binlog), at)
        left = rng.randrange(1, max(2, 2 * len(whole) // 200))
        for change in reader.changes():
            if isinstance(change, RowBatch):
                pieces.append(repr(change.rows))
                left -= 1
            if not left:
                break
        at = reader.checkpoint if by_gtid else replace(reader.checkpoint, gtids=None)
        inside += bool(at.batches)
    pieces += batches(BinlogReader(FileTransport(binlog), at))
    assert pieces == whole
    assert inside > 5, "no death fell into a transaction"


CHILD = """
import json, sys
from dataclasses import asdict
from ingest.binlog import BinlogPosition, BinlogReader, RowBatch
from ingest.binlog.transports.file_transport import FileTransport
file, position, batches = sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
reader = BinlogReader(FileTransport(sys.argv[1]), BinlogPosition(file=file, position=position, batches=batches))
for change in reader.changes():
    if isinstance(change, RowBatch):
        at = reader.checkpoint
        print(json.dumps([repr(change.rows), at.file, at.position, at.batches]), flush=True)
"""


@pytest.mark.long
@pytest.mark.parametrize(
    "binlog", ["northwind@m10", pytest.param("sakila@m97", marks=pytest.mark.matrix)], indirect=True
)
def test_processes_killed_by_the_kernel_lose_and_repeat_nothing(binlog: Path) -> None:
    """Kill -9 of a reading process, ten times: the lines that it wrote, together, equal one uninterrupted run."""
    whole = batches(BinlogReader(FileTransport(binlog)))
    rng = random.Random(3)
    pieces: list[str] = []
    place = ["", "4", "0"]
    for _ in range(10):
        command = [sys.executable, "-c", CHILD, str(binlog), *place]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
            assert child.stdout is not None
            for _ in range(rng.randrange(1, len(whole) // 10)):
                rows, file, position, done = json.loads(child.stdout.readline())
                pieces.append(rows)
                place = [file, str(position), str(done)]
            child.kill()
    at = BinlogPosition(file=place[0], position=int(place[1]), batches=int(place[2]))
    assert pieces + batches(BinlogReader(FileTransport(binlog), at)) == whole


def test_a_gtid_set_selects_the_rest_of_a_file(binlog: Path) -> None:
    """Files can be read from a GTID set: exactly the transactions that are not in it are returned."""
    whole = batches(BinlogReader(FileTransport(binlog)))
    reader = BinlogReader(FileTransport(binlog))
    first: list[str] = []
    for change in reader.changes():
        if isinstance(change, RowBatch):
            first.append(repr(change.rows))
        if len(first) > len(whole) // 2 and not reader.checkpoint.batches and not isinstance(change, RowBatch):
            break
    gtids = reader.checkpoint.gtids
    assert isinstance(gtids, GtidSet | MariaGtidSet)
    assert str(gtids)
    rest = batches(BinlogReader(FileTransport(binlog), BinlogPosition(gtids=gtids)))
    assert first + rest == whole
    assert rest


def test_an_index_is_followed_through_its_files(tmp_path: Path) -> None:
    """`.index` files are read in order, from any file and position in them."""
    names = ["dbz_boolean_test@m10", "dbz_decimal_test@m10", "dbz_float_test@m10"]
    for number, name in enumerate(names, 1):
        data = gzip.decompress((DATA / f"{name}.binlog.gz").read_bytes())
        (tmp_path / f"bin.{number:06d}").write_bytes(data)
    (tmp_path / "bin.index").write_text("".join(f"/elsewhere/bin.{n:06d}\n" for n in (1, 2, 3)))
    whole = batches(BinlogReader(FileTransport(tmp_path / "bin.index")))
    assert len(whole) == 3
    assert batches(BinlogReader(FileTransport(tmp_path / "bin.index"), BinlogPosition(file="bin.000002"))) == whole[1:]
