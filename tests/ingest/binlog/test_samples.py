"""Real binlogs of many servers: equal to the server's content, or refused for the right reason."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from cdc.model.errors import TailorbirdError
from ingest.binlog import BinlogReader, Committed, RowBatch, Statement, StreamOptions
from ingest.binlog.format.errors import CorruptBinlog
from ingest.binlog.reading.jsonl import JsonLines
from ingest.binlog.transports.file_transport import FileTransport
from tests.ingest.binlog.truth import expected, play

DATA = Path(__file__).resolve().parents[2] / "data" / "binlogs"
PAIRS = sorted(path.name.removesuffix(".binlog.gz") for path in (DATA / "pairs").glob("*.binlog.gz"))


@pytest.mark.parametrize("name", PAIRS)
def test_changes_lead_to_the_servers_rows(name: str) -> None:
    """Decoding and replaying a real binlog gives, cell by cell, the tables that its server printed."""
    truth = json.loads(gzip.decompress((DATA / "pairs" / f"{name}.truth.json.gz").read_bytes()))
    lines = JsonLines()
    reader = BinlogReader(FileTransport(DATA / "pairs" / f"{name}.binlog.gz"))
    found = play((line for change in reader.changes() for line in lines.lines(change)), truth)
    wanted = expected(truth)
    for table in wanted:
        assert found[table] == wanted[table], table


@pytest.mark.parametrize(
    ("name", "rows"),
    [
        ("canal-parse_mysql-bin.000001", 95),
        ("canal-parse_mysql-bin.000002", 1),
        ("canal-parse_tsdb_mysql-bin.000002", 1),
        ("canal-parse_tsdb_mysql-bin.000003", 21),
        ("osheroff-mysql-bin.aurora-padding", 0),
        ("osheroff-mysql-bin.checksum-crc32", 63),
        ("osheroff-mysql-bin.checksum-none", 36),
        ("osheroff-mysql-bin.sakila", 47273),
    ],
)
def test_foreign_binlog_is_read_to_its_end(name: str, rows: int) -> None:
    """Binlogs of MySQL 5.1 to 5.7 and of Aurora decode without metadata: every row is counted, none is guessed."""
    found = 0
    for change in BinlogReader(FileTransport(DATA / "foreign" / f"{name}.gz")).changes():
        if isinstance(change, RowBatch):
            found += len(change.rows)
            assert not any(column.named for column in change.decoder.table.columns)
    assert found == rows


def test_fragment_is_refused() -> None:
    """A file that is not a binlog ends in one clear error with its position, and yields no event."""
    reader = BinlogReader(FileTransport(DATA / "foreign" / "canal-parse_tsdb_mysql-bin.000001.gz"))
    with pytest.raises(CorruptBinlog, match=r"canal-parse_tsdb_mysql-bin\.000001\.gz:0: this is not a binlog"):
        list(reader.changes())


def test_only_wanted_tables_are_decoded() -> None:
    """A table filter omits the others and keeps the transactions' ends."""
    options = StreamOptions(tables=lambda database, table: table == "film")
    reader = BinlogReader(FileTransport(DATA / "pairs" / "sakila@m97.binlog.gz"), options=options)
    changes = list(reader.changes())
    assert {c.decoder.table.table for c in changes if isinstance(c, RowBatch)} == {"film"}
    assert any(isinstance(c, Committed) for c in changes)
    assert any(isinstance(c, Statement) for c in changes)


def test_errors_are_tailorbird_errors() -> None:
    """Every intended error of the library is a TailorbirdError, so that loops can decide by its class."""
    assert issubclass(CorruptBinlog, TailorbirdError)
    assert CorruptBinlog("x").exit_code == 3
