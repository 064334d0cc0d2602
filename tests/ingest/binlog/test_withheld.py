"""Rows of a binary log are published when their transaction is committed: any shape, any start, exactly once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest

from ingest.binlog import BinlogPosition, BinlogReader, StreamOptions
from ingest.binlog.format.errors import PositionGone
from ingest.binlog.format.gtid import AnyGtidSet, GtidSet
from ingest.binlog.transports.file_transport import FileTransport
from ingest.ddl.catalog import Catalog
from ingest.ddl.dialect import dialect_of
from ingest.events import prepared, withheld
from ingest.events.log_events import LogEvent, RowsLogged, RowsNotLogged, TransactionBegan, TransactionEnded
from ingest.events.logged import ENVELOPE, BinlogEvents
from ingest.events.prepared import STATE, PreparedTransaction
from ingest.events.tables import Tables
from tests.ingest.binlog.made_binlogs import UUIDS
from tests.ingest.binlog.made_transactions import MadeTransactions

SEEDS = range(12)


class Log:
    """A binlog file that can be read from any position, with the state of a checkpoint there."""

    def __init__(self, path: Path, *, purged: bool = False) -> None:
        self.path, self.purged, self.again = path, purged, 0
        self.tables = Tables("s", ["d"], lambda _, name: name == "short", dialect_of("mysql"))
        self.tables.begin(Catalog(databases={"d": "utf8mb4"}))

    def _reader(self, start: BinlogPosition) -> BinlogReader:
        options = StreamOptions(flavour=ENVELOPE, schema=self.tables, tables=self.tables.captured)
        return BinlogReader(FileTransport(self.path), start, options)

    def log_events(self, position: int = 4, state: Any = None, gtids: str = "") -> BinlogEvents:
        start = BinlogPosition(file=self.path.name, position=position, gtids=GtidSet.parse(gtids))
        return BinlogEvents(self._reader(start), self.tables, lambda: False, state or {}, self._read_again)

    @contextmanager
    def _read_again(self, transaction: PreparedTransaction, ended: AnyGtidSet | None) -> Iterator[BinlogReader]:
        self.again += 1
        if self.purged:
            raise PositionGone("purged")
        yield self._reader(BinlogPosition(file=transaction.file, position=transaction.pos))


def rows_of(event: LogEvent) -> list[int]:
    return [row["id"] for row in event.rows] if isinstance(event, RowsLogged) else []


def unknown(log_events: list[LogEvent], why: str) -> list[RowsNotLogged]:
    return [event for event in log_events if isinstance(event, RowsNotLogged) and event.why == why]


def read(log: Log, rng: Random, restarts: bool) -> list[LogEvent]:
    """Return all log events; at a restart, between transactions, only the checkpoint's state is known."""
    found: list[LogEvent] = []
    stream = log.log_events()
    while True:
        for event in stream:
            found.append(event)
            if isinstance(event, RowsLogged):  # a checkpoint here may not claim that the transaction has ended
                began = next(one for one in reversed(found) if isinstance(one, TransactionBegan))
                assert not GtidSet.parse(stream.gtid_set).covers(GtidSet.parse(began.gtid))
            if isinstance(event, TransactionEnded) and restarts and rng.random() < 0.2:
                stream = log.log_events(event.pos, stream.state, stream.gtid_set)
                break
        else:
            return found


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Set how many bytes are withheld of a transaction, and kept of prepared ones."""

    def limit(one: int, all_prepared: int) -> None:
        monkeypatch.setattr(withheld, "MOST", one)
        monkeypatch.setattr(prepared, "MOST", all_prepared)

    return limit


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("kept", [1 << 20, 100, 0])
def test_rows_are_published_once_at_their_commit(tmp_path: Path, limits: Any, restarts: bool, kept: int) -> None:
    """Committed rows in commit order, nothing of a rollback, whatever fits into memory. After an event that may hide
    rows all tables are read again, and the rest flows."""
    limits(1 << 20, kept)
    for seed in SEEDS:
        made = MadeTransactions(rng := Random(seed))
        log = Log(tmp_path / "binlog.000001")
        log.path.write_bytes(made.run(40))
        log_events = read(log, rng, restarts)
        assert [row for event in log_events for row in rows_of(event)] == made.committed, seed
        assert len(unknown(log_events, "incident")) == made.lost, seed
        assert all(event.tables is None for event in unknown(log_events, "incident"))
        assert not unknown(log_events, "xa") + unknown(log_events, "rollback")
        opened = 0
        for event in log_events:
            opened += isinstance(event, TransactionBegan) - isinstance(event, TransactionEnded)
            assert opened in (0, 1)
        assert opened == 0


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("purged", [False, True])
def test_rows_that_cannot_be_withheld_or_read_again_are_repaired(
    tmp_path: Path, limits: Any, restarts: bool, purged: bool
) -> None:
    """If published rows do not exist, or rows are missing because the log is gone, the table is read again."""
    for seed in SEEDS:
        rng = Random(seed)
        limits(rng.choice((0, 60, 200)), rng.choice((0, 100)))
        made = MadeTransactions(rng)
        log = Log(tmp_path / "binlog.000001", purged=purged)
        log.path.write_bytes(made.run(40))
        log_events = read(log, rng, restarts)
        published = [row for event in log_events for row in rows_of(event)]
        repaired = unknown(log_events, "rollback") + (unknown(log_events, "xa") if purged else [])
        assert all(event.tables == (("d", "short"),) for event in repaired)
        phantoms, missing = set(published) - set(made.committed), set(made.committed) - set(published)
        assert repaired or not phantoms | missing
        assert not missing or purged
        assert len(published) == len(set(published))
        last = max((n for n, event in enumerate(log_events) if event in repaired), default=-1)
        assert phantoms.isdisjoint(row for event in log_events[last + 1 :] for row in rows_of(event)), seed


def test_a_transaction_prepared_before_the_capture_is_repaired(tmp_path: Path) -> None:
    """The changes of an unknown XA transaction cannot be known: its commit has all tables read again, its rollback
    nothing."""
    made = MadeTransactions(Random(1))
    made.commit_unknown("abcd")
    log = Log(tmp_path / "binlog.000001")
    log.path.write_bytes(b"".join(made.log))
    log_events = list(log.log_events())
    (reported,) = unknown(log_events, "xa")
    assert reported.tables is None
    assert isinstance(log_events[-1], TransactionEnded)


def test_a_checkpoint_keeps_a_bounded_number_of_prepared_transactions(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest are dropped: their commit has all tables read again."""
    monkeypatch.setattr(prepared, "MANY", 3)
    known = prepared.PreparedTransactions({}, "s")
    assert known.state == {}
    for number in range(5):
        known.add(
            PreparedTransaction(
                xid=str(number), gtid=f"{UUIDS[0]}:{number + 1}", file="f", pos=number, since_ms=7, tables=(), events=()
            )
        )
    assert [one[0] for one in known.state[STATE]] == ["2", "3", "4"]
    again = prepared.PreparedTransactions(known.state, "s")
    assert again.state == known.state
    for number in range(2, 5):
        again.remove(str(number))
    assert again.state == {STATE: []}
