"""The log events that a capture reads of a binlog are the same on the fast and on the general path."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cdc.model.errors import TailorbirdError
from cdc.model.event import Position
from ingest.binlog import BinlogReader, StreamOptions
from ingest.binlog.reading.whole import ReadBuffer, WholeTransaction, WholeTransactions
from ingest.binlog.transports.file_transport import FileTransport
from ingest.ddl.catalog import Catalog, ColumnDefinition, Key, TableDefinition
from ingest.ddl.dialect import dialect_of
from ingest.events.log_events import CaughtUp, LogEvent, TransactionEnded, TransactionLogged, one_by_one
from ingest.events.logged import ENVELOPE, BinlogEvents
from ingest.events.tables import Tables
from ingest.records.capture_interfaces import Checkpoint, Record
from ingest.records.records import Recorder
from ingest.records.transactions import Transactions
from tests.ingest.binlog.made_binlogs import a_binlog, damage

Reported = tuple[list[tuple[LogEvent, object]], str]


def table(**columns: str) -> TableDefinition:
    return TableDefinition(
        columns=tuple(
            ColumnDefinition(name=name, column_type=kind, nullable=True, charset="utf8mb4" if "char" in kind else None)
            for name, kind in columns.items()
        ),
        keys=(Key(name="PRIMARY", kind="primary", columns=("id",)),),
    )


CATALOG = Catalog(
    databases={"d": "utf8mb4"},
    tables={
        ("d", "short"): table(id="int"),
        ("d", "wide"): table(id="int unsigned", name="varchar(75)", price="decimal(12,2)", made="datetime(6)"),
    },
)


def facts_of(path: Path, captured: set[str], *, known: bool = True) -> tuple[BinlogEvents, Tables]:
    tables = Tables("s", ["d"], lambda database, name: name in captured, dialect_of("mysql"))
    tables.begin(CATALOG if known else Catalog(databases={"d": "utf8mb4"}))
    options = StreamOptions(flavour=ENVELOPE, schema=tables, tables=tables.captured)
    return BinlogEvents(BinlogReader(FileTransport(path), None, options), tables, lambda: False), tables


def reported(path: Path, captured: set[str]) -> tuple[Reported, int]:
    """Return all log events one by one, with the GTIDs after each transaction, and the final error; and the number of
    transactions read whole."""
    stream, _ = facts_of(path, captured)
    found: list[tuple[LogEvent, object]] = []
    whole, error = 0, ""
    try:
        for event in stream:
            whole += isinstance(event, TransactionLogged)
            parts = one_by_one(event)
            found += [(part, stream.gtid_set if isinstance(part, TransactionEnded) else None) for part in parts]
    except TailorbirdError as raised:
        error = str(raised)
    return (found, error), whole


def recorded(path: Path) -> list[tuple[LogEvent | None, list[Record], Checkpoint | None]]:
    """Return records and checkpoint of each transaction."""
    stream, tables = facts_of(path, {"short", "wide"})
    start = Checkpoint(position=Position(file="", pos=4, gtid_set="", sequence=7), snapshot="done", ts_ms=0)
    transactions = Transactions(Recorder("top"), tables, start)
    found: list[Any] = []
    records: list[Record] = []
    for event in stream:
        records += transactions.records(event, 1_700_000_000_000)
        if transactions.whole and not isinstance(event, CaughtUp):
            found.append((records, transactions.checkpoint(stream), transactions.changes))
            records = []
    return found


@pytest.fixture
def general(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Call a function while no transaction is read whole."""

    def none(self: WholeTransactions, buffer: ReadBuffer) -> Iterator[WholeTransaction]:
        return iter(())

    def run(function: Any, *arguments: Any) -> Any:
        with monkeypatch.context() as patch:
            patch.setattr(WholeTransactions, "transactions", none)
            return function(*arguments)

    return run


SETTINGS = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
randoms = st.randoms(use_true_random=False)


@SETTINGS
@given(randoms, st.booleans(), st.sampled_from([{"short", "wide"}, {"wide"}, {"short", "wide", "nameless"}]))
def test_log_events_are_the_same_whole_and_one_by_one(
    tmp_path: Path, general: Any, rng: Random, damaged: bool, captured: set[str]
) -> None:
    """The same events with the same GTIDs after each transaction, and the same error; also for rows that are kept."""
    events = a_binlog(rng, 30)
    if damaged:
        damage(rng, events)
    path = tmp_path / "binlog.000001"
    path.write_bytes(b"\xfebin" + b"".join(events))
    expected, none = general(reported, path, captured)
    assert reported(path, captured)[0] == expected
    assert none == 0


@SETTINGS
@given(randoms)
def test_records_are_the_same_whole_and_one_by_one(tmp_path: Path, general: Any, rng: Random) -> None:
    """The bytes of every record, and the checkpoint after every transaction."""
    path = tmp_path / "binlog.000001"
    path.write_bytes(b"\xfebin" + b"".join(a_binlog(rng, 30, unmapped=False)))
    assert recorded(path) == general(recorded, path)


def test_most_transactions_of_one_row_are_read_whole(tmp_path: Path) -> None:
    """The comparisons above are valid only if the fast path is taken."""
    path = tmp_path / "binlog.000001"
    path.write_bytes(b"\xfebin" + b"".join(a_binlog(Random(3), 200, unmapped=False)))
    (found, error), whole = reported(path, {"short", "wide"})
    assert error == ""
    assert len(found) > 400
    assert whole > 80
