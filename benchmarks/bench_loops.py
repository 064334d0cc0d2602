"""Measure the benefit of the separate loop for one-row transactions (`make bench-loops`, ADR 26).

The benchmark turns one-row transactions of a wide table from a binlog into the records that capture appends. It
alternates between the loop that takes whole transactions out of the buffer and the general one, and measures CPU time.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

from cdc.model.event import Position
from ingest.binlog import BinlogReader, StreamOptions
from ingest.binlog.format.codes import ColumnType as T
from ingest.binlog.format.columns import LoggedColumn
from ingest.binlog.reading.whole import ReadBuffer, WholeTransaction, WholeTransactions
from ingest.binlog.transports.file_transport import FileTransport
from ingest.binlog.writer.writer import BinlogWriter
from ingest.ddl.catalog import Catalog, ColumnDefinition, Key, TableDefinition
from ingest.ddl.dialect import dialect_of
from ingest.events.logged import ENVELOPE, BinlogEvents
from ingest.events.tables import Tables
from ingest.records.capture_interfaces import Checkpoint
from ingest.records.records import Recorder
from ingest.records.transactions import Transactions

NOW, UUID = 1_700_000_000, "11111111-2222-3333-4444-555555555555"
COLUMNS = [
    LoggedColumn(index=0, name="id", type=T.LONG, named=True, unsigned=False),
    LoggedColumn(index=1, name="customer", type=T.LONG, named=True, unsigned=False),
    LoggedColumn(index=2, name="status", type=T.VARCHAR, named=True, width=80, size=1, charset="utf8mb4"),
    LoggedColumn(index=3, name="amount", type=T.NEWDECIMAL, named=True, precision=12, scale=2, unsigned=False),
    LoggedColumn(index=4, name="made", type=T.DATETIME2, named=True, digits=6),
]
TYPES = {"id": "int", "customer": "int", "status": "varchar(20)", "amount": "decimal(12,2)", "made": "datetime(6)"}


def write_binlog(path: Path, changes: int) -> None:
    """Write a binlog of one-row updates, as an OLTP server logs them."""
    writer = BinlogWriter()
    with path.open("wb") as file:
        file.write(writer.begin(NOW))
        for number in range(1, changes + 1):
            old = {"id": number % 9999, "customer": 7, "status": "new", "amount": "10.00"}
            old["made"] = "2024-02-01 10:11:12.000000"
            file.write(writer.gtid(UUID, number, NOW, commit_us=NOW * 1_000_000 + number))
            file.write(writer.query("d", "BEGIN", NOW))
            file.write(writer.table_map(70, "d", "t", COLUMNS, NOW))
            file.write(writer.rows("update", 70, COLUMNS, [(old, {**old, "status": "paid"})], NOW))
            file.write(writer.xid(number, NOW))


def records_of(path: Path) -> int:
    """Read a binlog as capture does; return the number of records."""
    definitions = tuple(
        ColumnDefinition(name=name, column_type=kind, nullable=True, charset="utf8mb4" if "char" in kind else None)
        for name, kind in TYPES.items()
    )
    key = Key(name="PRIMARY", kind="primary", columns=("id",))
    tables = Tables("s", ["d"], lambda database, name: True, dialect_of("mysql"))
    table = TableDefinition(columns=definitions, keys=(key,))
    tables.begin(Catalog(databases={"d": "utf8mb4"}, tables={("d", "t"): table}))
    options = StreamOptions(flavour=ENVELOPE, schema=tables, tables=tables.captured)
    stream = BinlogEvents(BinlogReader(FileTransport(path), None, options), tables, lambda: False)
    start = Checkpoint(position=Position(file="", pos=4, gtid_set="", sequence=0), snapshot="done", ts_ms=0)
    transactions, count = Transactions(Recorder("bench"), tables, start), 0
    for fact in stream:
        count += len(transactions.records(fact, NOW * 1000))
    return count


def never(self: WholeTransactions, buffer: ReadBuffer) -> Iterator[WholeTransaction]:
    """Replace the fast loop: take no transaction whole."""
    return iter(())


def main() -> None:
    """Print the CPU time of both loops and their ratio."""
    parser = argparse.ArgumentParser(prog="make bench-loops", description=__doc__)
    parser.add_argument("--changes", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    spent: dict[str, list[float]] = {"whole": [], "general": []}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "binlog.000001"
        write_binlog(path, options.changes)
        for _ in range(options.rounds):
            for way, seconds in spent.items():
                began = time.process_time()
                if way == "whole":
                    count = records_of(path)
                else:
                    with patch.object(WholeTransactions, "transactions", never):
                        count = records_of(path)
                seconds.append((time.process_time() - began) / options.changes * 1e6)
                assert count >= options.changes, f"{way}: {count} records"
    best = {way: min(seconds) for way, seconds in spent.items()}
    for way, seconds in spent.items():
        print(f"{way:8} {best[way]:6.2f} µs of CPU per change (of {', '.join(f'{one:.2f}' for one in seconds)})")
    print(f"the loop of whole transactions is {best['general'] / best['whole']:.2f}× as fast")


if __name__ == "__main__":
    main()
