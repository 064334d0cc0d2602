"""One session of capture against a scripted source: the content of each commit, and refusals."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import orjson
import pytest

from cdc.model.errors import Fatal, Retriable
from cdc.model.event import Position
from cdc.model.history import history_from_records
from cdc.model.naming import TRUNCATE_KEY, history_topic, schemas_topic
from cdc.model.schema import TableId
from cdc.topology.topology import PositionLostAction, SnapshotMode
from ingest.capture.groups import Limits
from ingest.capture.marks import SLACK
from ingest.capture.observer import Observer
from ingest.capture.session import Session
from ingest.ddl.catalog import Catalog, ColumnDefinition, Key, TableDefinition
from ingest.ddl.dialect import dialect_of
from ingest.events.foreign_keys import ForeignKeys
from ingest.events.log_events import (
    CaughtUp,
    Image,
    LogEvent,
    RowsLogged,
    RowsNotLogged,
    StatementLogged,
    TransactionBegan,
    TransactionEnded,
    TransactionLogged,
)
from ingest.events.tables import Tables
from ingest.log.memory_log import Broker, MemoryLog
from ingest.records.capture_interfaces import (
    Checkpoint,
    LogDamaged,
    LogReplaced,
    PositionLost,
    Record,
    ServerTables,
    Stream,
)
from ingest.records.chunk_requests import Chunk, ChunkRequest
from ingest.records.records import Recorder

UUID = "1e4be0df-e594-11f1-ae82-02fc00000001"
TABLE = TableId(source="s", database="d", table="t")


def shown(column_type: str, *names: str) -> Catalog:
    """A server whose tables have only a key."""
    column = ColumnDefinition(name="id", column_type=column_type, nullable=False, charset=None)
    table = TableDefinition(columns=(column,), keys=(Key(name="PRIMARY", kind="primary", columns=("id",)),))
    return Catalog(databases={"d": "utf8mb4"}, tables={("d", name): table for name in names})


@dataclass
class Script:
    """A source that returns a script: tables, pages of rows, then log events; a float lets so many seconds pass."""

    reported: list[LogEvent | float | Exception] = field(default_factory=list)
    pages: list[list[Image]] = field(default_factory=list)
    names: tuple[str, ...] = ("t", "added")
    captured: tuple[str, ...] = ("t",)
    altered: bool = False
    now: float = 1000.0
    over: bool = False
    ended: int = 0
    rests: tuple[str, int] | None = None
    lost: bool = False
    loss: type[PositionLost] = PositionLost
    reads: bool = True
    purged: bool = False
    requests: int = 0
    asked: list[ChunkRequest] = field(default_factory=list)

    def head(self) -> Position:
        return Position(file="f", pos=4, gtid_set="", sequence=0)

    def seen(self) -> ServerTables:
        return ServerTables(
            catalog=shown("bigint" if self.altered else "int", *self.names),
            dialect=dialect_of("mysql"),
            reads=self.reads,
        )

    def release(self, position: Position) -> None:
        pass

    def foreign_keys(self) -> ForeignKeys:
        return ForeignKeys()

    def holds(self, position: Position) -> bool:
        return not self.purged

    @contextmanager
    def chunks(self) -> Iterator[Script]:
        yield self

    def request(self, request: ChunkRequest) -> None:
        self.asked.append(request)
        self.requests += 1

    def ready(self) -> list[Chunk]:
        found = []
        for request in self.asked:
            number = request.after[0] if request.after else 0
            after = [number + 1] if number + 1 < len(self.pages) else None
            images = self.pages[number] if self.pages else []
            found.append(Chunk(request=request, images=images, after=after, last=[9], high=self.head()))
        self.asked.clear()
        return found

    @contextmanager
    def stream(self, checkpoint: Checkpoint, tables: Tables, *, busy: bool) -> Iterator[Stream]:
        if self.lost and checkpoint.position.sequence == 1:
            raise self.loss("the server has purged transactions that were never read", "take a new snapshot")
        yield self

    @property
    def place(self) -> tuple[str, int]:
        return self.rests or ("f", self.ended or 4)

    @property
    def state(self) -> dict[str, Any]:
        return {}

    def reached(self, position: Position) -> bool:
        return True

    @property
    def gtid_set(self) -> str:
        return "" if not self.ended else f"{UUID}:1" if self.ended == 1 else f"{UUID}:1-{self.ended}"

    def __iter__(self) -> Iterator[LogEvent]:
        while self.reported:  # a reopened stream continues after the last event
            log_event = self.reported.pop(0)
            if isinstance(log_event, float):
                self.now += log_event
            elif isinstance(log_event, Exception):
                raise log_event
            else:
                self.ended += isinstance(log_event, TransactionEnded | TransactionLogged)
                yield log_event
        self.over = True
        yield CaughtUp()


def transaction(number: int, *ids: int, commit_us: int = 1_000_000_000) -> list[LogEvent]:
    rows = [RowsLogged(TABLE, "insert", [{"id": i}], True, "f", number) for i in ids]
    return [TransactionBegan(f"{UUID}:{number}", commit_us, 1, "f", number), *rows, TransactionEnded("f", number)]


def whole(number: int, *ids: int) -> TransactionLogged:
    """Return the same transaction as one log event."""
    began, rows, ended = transaction(number, *ids)
    assert isinstance(began, TransactionBegan)
    assert isinstance(rows, RowsLogged)
    assert isinstance(ended, TransactionEnded)
    return TransactionLogged(began, rows, ended)


def run(
    script: Script,
    broker: Broker,
    mode: SnapshotMode = "never",
    limits: Limits | None = None,
    position_lost: PositionLostAction = "fail",
    dumps: bool = True,
    rereads: bool = True,
) -> None:
    Session(
        source=script,
        log=MemoryLog(broker, schemas_topic("top"), history_topic("top")),
        recorder=Recorder("top"),
        tables=lambda seen: Tables(
            "s", ["d"], lambda database, table: database == "d" and table in script.captured, seen.dialect
        ),
        mode=mode,
        clock=lambda: script.now,
        stopped=lambda: script.over,
        observer=Observer(),
        limits=limits or Limits(),
        position_lost=position_lost,
        dumps=dumps,
        rereads=rereads,
    ).run()


def commits(broker: Broker) -> list[tuple[str, int]]:
    return [(c.position.gtid_set.removeprefix(UUID), c.position.sequence) for c in broker.checkpoints]


def test_an_idle_source_is_committed_at_once_a_busy_one_in_groups() -> None:
    """A lone transaction is committed at once; queued transactions share a commit, each one whole."""
    broker = Broker()
    alone = [*transaction(1, 10), CaughtUp()]
    in_line = [*transaction(2, 11), *transaction(3, 12, 13), CaughtUp()]
    run(Script(reported=[*alone, *in_line]), broker)
    assert commits(broker) == [("", 0), (":1", 1), (":1-3", 4)]


def test_a_group_ends_at_its_limits() -> None:
    """Rows and time limit a group; it ends at a transaction's end and never inside one."""
    broker = Broker()
    reported = [*transaction(1, 1, 2, 3), *transaction(2, 4), 0.06, *transaction(3, 5), *transaction(4, 6)]
    run(Script(reported=list(reported)), broker, limits=Limits(rows=3, linger=0.03))
    assert commits(broker) == [("", 0), (":1", 3), (":1-3", 5), (":1-4", 6)]
    broker = Broker()
    slow: list[LogEvent | float | Exception] = [*transaction(1, 1), *transaction(2, 2)[:-1], 0.06, transaction(2)[-1]]
    run(Script(reported=[*slow, *transaction(3, 3)]), broker)
    assert commits(broker) == [("", 0), (":1-2", 2), (":1-3", 3)]


def test_a_lagging_capture_commits_larger_groups() -> None:
    """After a late commit the next ones are larger, until one is in time again."""
    broker = Broker()
    late: list[LogEvent | float | Exception] = []
    for number in range(1, 8):
        late += [*transaction(number, number, commit_us=900_000_000), 0.06]
    in_time = [*transaction(8, 8), *transaction(9, 9), *transaction(10, 10)]
    run(Script(reported=[*late, *in_time]), broker, limits=Limits(rows=2, catch_up=4, behind=0.5))
    assert commits(broker) == [("", 0), (":1-2", 2), (":1-6", 6), (":1-10", 10)]


def test_foreign_changes_move_the_position_now_and_then() -> None:
    """Transactions of other tables publish nothing, but the position follows, so that the log may be purged."""
    broker = Broker()
    run(Script(reported=[*transaction(1), CaughtUp(), 0.5, *transaction(2), CaughtUp(), 0.6, CaughtUp()]), broker)
    assert commits(broker) == [("", 0), (":1-2", 0)]
    assert [record.topic for record in broker.records] == ["top.history"] * 3 + ["top.schemas", "top.history"]


def test_an_idle_capture_follows_the_end_of_the_log() -> None:
    """A new log file without a transaction advances the position, so that the previous file may be purged; a heartbeat
    commits although nothing has moved."""
    broker = Broker()
    script = Script(reported=[*transaction(1, 1), CaughtUp(), 1.5, CaughtUp(), 1.5, CaughtUp(), 1.5, CaughtUp()])
    script.rests = ("g", 4)
    run(script, broker)
    assert [(c.position.file, c.position.pos) for c in broker.checkpoints] == [("f", 4), ("g", 4)]
    broker = Broker()
    reported = [*transaction(1, 1), CaughtUp(), 1.5, CaughtUp(), 1.5, CaughtUp(), 1.5, CaughtUp()]
    run(Script(reported=list(reported)), broker, limits=Limits(heartbeat=3.0))
    assert commits(broker) == [("", 0), (":1", 1), (":1", 1)]
    broker = Broker()
    run(Script(reported=list(reported)), broker)
    assert commits(broker) == [("", 0), (":1", 1)]


def test_a_long_history_is_restated_and_read_from_there() -> None:
    """Start-up reads what the tables need, not their whole history; the restatement has the same schemas. It may be
    restated once no stored position is older than it."""
    broker = Broker()
    log_events: list[LogEvent | float | Exception] = []
    for n in range(SLACK + 200):
        begin, end = transaction(n + 1)
        altered = StatementLogged("d", f"ALTER TABLE t {f'DROP COLUMN c{n - 1}' if n % 2 else f'ADD c{n} INT'}", 1, 0)
        log_events += [begin, altered, end]
    run(Script(reported=[*log_events, CaughtUp()]), broker)
    log = MemoryLog(broker, schemas_topic("top"), history_topic("top"))
    long = len(log.history())
    run(Script(reported=[CaughtUp()]), broker)
    assert len(log.history()) >= long > SLACK
    run(Script(reported=[CaughtUp(), *transaction(9999, 5), CaughtUp()], purged=True), broker)
    assert len(log.history()) < 10
    state = history_from_records(log.history(), "s").last_state(TABLE)
    assert state is not None
    assert state.schema is not None
    assert [column.name for column in state.schema.columns] == ["id"]
    assert broker.checkpoints[-1].position.sequence == SLACK + 201


def test_an_idle_source_publishes_nothing() -> None:
    """No change, no record, however long it lasts."""
    broker = Broker()
    run(Script(reported=[CaughtUp(), 100.0, CaughtUp(), 100.0, CaughtUp()]), broker)
    assert len(broker.checkpoints) == 1


def test_tables_that_cannot_be_read_again_do_not_end_the_capture() -> None:
    """A host's policy, or a server without GTIDs, allows no table to be read. Changes that an incident hides are marked
    as partial, a damaged part of the log is skipped, and the rest flows."""
    broker = Broker()
    begin, end = transaction(1)
    incident = RowsNotLogged(None, "an incident", "incident")
    damaged = LogDamaged("the log cannot be read", "look into the server's error log")
    script = Script(reported=[begin, incident, end, *transaction(2, 5), CaughtUp(), damaged])
    with pytest.raises(Retriable, match="restarts"):
        run(script, broker, dumps=False)
    script.reported = [damaged]
    script.reported += transaction(3, 6)
    run(script, broker, dumps=False)
    events = [orjson.loads(r.value) for r in broker.records if r.topic == "top.s.d.t" and r.value is not None]
    assert [(event["after"]["id"], event["source"]["snapshot"]) for event in events] == [(5, "false"), (6, "false")]
    assert script.requests == 0
    assert [*broker.checkpoints[-1].state["partial"]] == ["d.t"]


def test_a_damaged_log_is_repaired_despite_position_lost_fail() -> None:
    """`position_lost: fail` concerns a log that was purged or replaced, not one that is damaged for good."""
    broker = Broker()
    run(Script(reported=[*transaction(1, 5), CaughtUp()], pages=[[{"id": 5}]]), broker, mode="initial")
    damaged = LogDamaged("the log cannot be read", "look into the server's error log")
    script = Script(
        reported=[damaged, *[CaughtUp()] * 9, *transaction(2, 6), CaughtUp()], pages=[[{"id": 5}, {"id": 7}]]
    )
    run(script, broker)
    events = [orjson.loads(r.value) for r in broker.records if r.topic == "top.s.d.t" and r.value is not None]
    rows = [event["after"]["id"] for event in events if event["after"]]
    assert rows[-3:] == [5, 7, 6]
    assert [event["op"] for event in events].count("t") == 1


def test_transactions_before_a_refusal_are_published() -> None:
    """After whole transactions, a Fatal error lets them be committed first; inside a transaction nothing of it is."""
    broker = Broker()
    reported: list[LogEvent | float | Exception] = [
        *transaction(1, 10),
        transaction(2)[0],
        Fatal("truncated", "snapshot"),
    ]
    with pytest.raises(Fatal):
        run(Script(reported=reported), broker)
    assert commits(broker)[-1] == (":1", 1)
    broker = Broker()
    with pytest.raises(Fatal):
        run(Script(reported=[*transaction(1, 10)[:2], Fatal("unreadable", "report it")]), broker)
    assert commits(broker) == [("", 0)]
    assert [record.topic for record in broker.records] == ["top.history"] * 3 + ["top.schemas", "top.history"]


def test_whole_transactions_are_appended_together_before_their_commit() -> None:
    """Records of many small transactions are appended in few calls, in order, and never after the commit of their
    position; a Fatal error commits those before it."""
    numbers = range(1, 101)
    plain, together, refused = Broker(), Broker(), Broker()
    run(Script(reported=[event for n in numbers for event in transaction(n, n % 7)]), plain)
    script = Script(reported=[whole(n, n % 7) for n in numbers])
    with patch.object(MemoryLog, "extend", autospec=True, side_effect=MemoryLog.extend) as extended:
        run(script, together)
    assert together.records == plain.records
    assert commits(together) == commits(plain)
    assert sum(any("top.s.d" in one.topic for one in call.args[1]) for call in extended.call_args_list) < 10
    with pytest.raises(Fatal):
        run(Script(reported=[*(whole(n, n % 7) for n in numbers[:50]), Fatal("truncated", "snapshot")]), refused)
    assert commits(refused)[-1] == (":1-50", 50)
    assert refused.records == plain.records[: len(refused.records)]
    assert len([one for one in refused.records if "top.s.d" in one.topic]) == 50


@pytest.mark.parametrize("together", [False, True])
def test_a_record_that_the_log_refuses_is_not_passed_over(together: bool) -> None:
    """If the log refuses records, the position behind them is not committed, and the next session reads them again."""
    broker = Broker()
    events: list[LogEvent] = [event for n in range(1, 9) for event in transaction(n, n)]
    if together:
        events = [whole(n, n) for n in range(1, 9)]

    class Refusing(MemoryLog):
        def extend(self, records: Iterable[Record]) -> None:
            listed = list(records)
            if any(b'"id":5' in record.key for record in listed):
                raise Fatal("a record is too large", "report it")
            super().extend(listed)

    with patch(f"{__name__}.MemoryLog", Refusing), pytest.raises(Fatal):
        run(Script(reported=[*events]), broker)
    assert commits(broker) == [("", 0)]


def test_a_lost_connection_aborts_uncommitted_records() -> None:
    """After a Retriable error in the middle of a group, the next session finds the last commit and no partial one."""
    broker = Broker()
    with pytest.raises(Retriable):
        run(Script(reported=[*transaction(1, 10), *transaction(2, 11)[:2], Retriable("away")]), broker)
    assert commits(broker) == [("", 0)]
    run(Script(reported=[*transaction(1, 10), *transaction(2, 11)]), broker)
    assert commits(broker)[-1] == (":1-2", 2)


def test_a_snapshot_is_committed_in_chunks_and_resumed() -> None:
    """Every chunk is committed with its last key; a new session reads from there; only the last chunk reports the
    end."""
    broker = Broker()
    pages: list[list[Image]] = [[{"id": 1}, {"id": 2}], [{"id": 3}, {"id": 4}], [{"id": 5}]]
    with pytest.raises(Retriable):
        run(Script(reported=[CaughtUp(), CaughtUp(), Retriable("away")], pages=pages), broker, "initial")
    assert [c.snapshot for c in broker.checkpoints] == ["running", "running"]
    assert broker.checkpoints[-1].state["snapshots"] == {
        "d.t": {"rows": 2, "whole": True, "initial": True, "began_ms": 1_000_000, "after": [1], "last": [9]}
    }
    run(Script(reported=[CaughtUp()] * 4, pages=pages), broker, "initial")
    assert [c.snapshot for c in broker.checkpoints][2:] == ["running", "done"]
    values = [orjson.loads(r.value) for r in broker.records if r.topic == "top.s.d.t" and r.value]
    assert [(v["op"], v["after"]["id"], v["source"]["sequence"]) for v in values] == [("r", i, 0) for i in range(1, 6)]


def test_rows_that_change_while_they_are_read_are_left_to_the_log() -> None:
    """Live changes win: the chunk's older image is not published."""
    broker = Broker()
    pages: list[list[Image]] = [[{"id": 1}, {"id": 2}]]
    run(Script(reported=[CaughtUp(), *transaction(1, 2), CaughtUp()], pages=pages), broker, "initial")
    values = [orjson.loads(r.value) for r in broker.records if r.topic == "top.s.d.t" and r.value]
    assert [(v["op"], v["after"]["id"]) for v in values] == [("c", 2), ("r", 1)]


def test_changes_are_partial_until_their_table_was_read() -> None:
    """While a table's snapshot runs, or without one, its changes are marked: the log may lack earlier rows."""
    pages: list[list[Image]] = [[{"id": 1}, {"id": 2}]]
    modes: list[tuple[SnapshotMode, list[bool]]] = [("initial", [True, False]), ("never", [True, True])]
    for mode, marked in modes:
        broker = Broker()
        reported: list[Any] = [CaughtUp(), *transaction(1, 2), CaughtUp(), *transaction(2, 3)]
        run(Script(reported=reported, pages=pages), broker, mode)
        values = [orjson.loads(r.value) for r in broker.records if r.topic == "top.s.d.t" and r.value]
        assert [v["source"].get("partial", False) for v in values if v["op"] == "c"] == marked
        assert [*broker.checkpoints[-1].state.get("partial", [])] == ([] if mode == "initial" else ["d.t"])


def test_a_chunk_is_discarded_when_its_table_is_truncated_while_it_is_read() -> None:
    """After a TRUNCATE in the window, rows that were read before it are not published."""
    broker = Broker()
    truncated: list[LogEvent] = [
        TransactionBegan(f"{UUID}:1", 1, 1, "f", 1),
        StatementLogged("d", "TRUNCATE t", 1, 0),
        TransactionEnded("f", 1),
    ]
    script = Script(reported=[CaughtUp(), *truncated], pages=[[{"id": 1}]])
    run(script, broker, "initial")
    assert [r.key for r in broker.records if r.topic == "top.s.d.t"] == [TRUNCATE_KEY, b'{"id":1}']
    assert script.requests == 2


def test_a_table_that_is_renamed_into_place_is_read_again() -> None:
    """After a rename swap the log does not contain the rows of the new `t`; at the end a marker deletes the old
    ones."""
    broker = Broker()
    swap: list[LogEvent] = [
        TransactionBegan(f"{UUID}:1", 1, 1, "f", 1),
        StatementLogged("d", "RENAME TABLE t TO old, added TO t", 1, 0),
        TransactionEnded("f", 1),
    ]
    run(Script(reported=[*swap, CaughtUp(), *[CaughtUp()] * 3], pages=[[{"id": 7}]]), broker)
    records = [r for r in broker.records if r.topic == "top.s.d.t"]
    row, mark = (orjson.loads(r.value or b"null") for r in records)
    assert (row["op"], row["after"], mark["op"], records[1].key) == ("r", {"id": 7}, "t", TRUNCATE_KEY)
    assert row["source"]["sequence"] >= mark["source"]["sequence"] > 0


def test_a_lost_position_is_reported_or_all_tables_are_read_again() -> None:
    """The capture never skips silently: it ends with the reason, or starts again with a marker."""
    broker = Broker()
    run(Script(reported=[*transaction(1, 10)]), broker)
    with pytest.raises(PositionLost, match="purged"):
        run(Script(lost=True), broker)
    lost = Script(lost=True, reported=[CaughtUp()] * 4, pages=[[{"id": 11}]])
    run(lost, broker, position_lost="resnapshot")
    values = [orjson.loads(r.value) for r in broker.records if r.topic == "top.s.d.t" and r.value]
    assert [(v["op"], v["source"]["sequence"]) for v in values] == [("c", 1), ("r", 2), ("t", 2)]
    assert [c.snapshot for c in broker.checkpoints][-2:] == ["running", "done"]


def test_by_default_a_purged_log_is_repaired() -> None:
    """All tables are read again, and the checkpoints contain the reason until that has ended."""
    broker = Broker()
    run(Script(reported=[*transaction(1, 10)]), broker)
    run(Script(lost=True, reported=[CaughtUp()] * 4, pages=[[{"id": 11}]]), broker, position_lost="auto")
    values = [orjson.loads(r.value) for r in broker.records if r.topic == "top.s.d.t" and r.value]
    assert [(v["op"], v["source"]["sequence"]) for v in values] == [("c", 1), ("r", 2), ("t", 2)]
    running, done = (one.state.get("reread") for one in broker.checkpoints[-2:])
    assert running == {"why": "the server has purged transactions that were never read", "since_ms": 1_000_000}
    assert done is None


@pytest.mark.parametrize("case", ["another server", "unreadable tables", "only reported"])
def test_by_default_a_loss_that_reading_cannot_repair_is_reported(case: str) -> None:
    """Rows of what may be the wrong server replace nothing; without tables to read, nothing is repaired."""
    broker = Broker()
    run(Script(reported=[*transaction(1, 10)]), broker)
    before = len(broker.records)
    loss = LogReplaced if case == "another server" else PositionLost
    lost = Script(lost=True, loss=loss, reads=case != "unreadable tables", pages=[[{"id": 11}]])
    with pytest.raises(loss, match="purged"):
        run(lost, broker, position_lost="auto", rereads=case != "only reported")
    assert len(broker.records) == before


def test_numbers_are_not_reused_after_a_position_was_lost() -> None:
    """A session that has committed changes and then finds the log purged leaves the rest to the next session."""
    broker = Broker()
    reported: list[Any] = [*transaction(1, 10), CaughtUp(), *transaction(2, 11), PositionLost("purged", "")]
    with pytest.raises(Retriable, match="restarts"):
        run(Script(reported=reported), broker, position_lost="resnapshot")
    assert commits(broker)[-1] == (":1-2", 2)
    script = Script(reported=[PositionLost("purged", ""), *[CaughtUp()] * 4], pages=[[{"id": 12}]])
    run(script, broker, position_lost="resnapshot")
    values = [orjson.loads(r.value) for r in broker.records if r.topic == "top.s.d.t" and r.value]
    assert [(v["op"], v["source"]["sequence"]) for v in values] == [("c", 1), ("c", 2), ("r", 3), ("t", 3)]


def test_a_table_added_to_the_topology_is_read_while_the_log_is_streamed() -> None:
    """Its older rows are not missing, and no other table is read again."""
    broker = Broker()
    run(Script(), broker)
    run(Script(captured=("t", "added"), reported=[CaughtUp()] * 3, pages=[[{"id": 1}]]), broker)
    values = [orjson.loads(r.value) for r in broker.records if r.topic == "top.s.d.added" and r.value]
    assert [(v["op"], v["after"]["id"]) for v in values] == [("r", 1)]
    assert all(c.snapshot == "done" for c in broker.checkpoints)


@pytest.mark.parametrize(("dumps", "rereads"), [(True, True), (False, True), (True, False)])
def test_changes_that_the_log_lost_are_read_again_if_possible(dumps: bool, rereads: bool) -> None:
    """Otherwise no marker deletes rows, since none were read: later changes are marked as partial."""
    broker = Broker()
    run(Script(reported=[*transaction(1, 10)]), broker, mode="initial")
    broker.lose("top.s.d.t")
    pages: list[list[Image]] = [[{"id": 10}]] if dumps and rereads else []
    script = Script(reported=[*[CaughtUp()] * 4, *transaction(2, 11)], pages=pages)
    run(script, broker, dumps=dumps, rereads=rereads)
    values = [orjson.loads(r.value) for r in broker.records if r.topic == "top.s.d.t" and r.value]
    reported = [(v["op"], v["source"].get("partial", False)) for v in values]
    assert reported == ([("r", False), ("t", False), ("c", False)] if dumps and rereads else [("c", True)])
    assert bool(script.requests) == (dumps and rereads)


def test_a_huge_transaction_takes_several_commits() -> None:
    """Memory and Kafka's transactions stay bounded; the published part is counted and not repeated."""
    broker = Broker()
    reported: list[LogEvent | float | Exception] = [*transaction(1, *range(7))[:-1], Retriable("away")]
    with pytest.raises(Retriable):
        run(Script(reported=reported), broker, limits=Limits(largest=3))
    assert [(c.position.row, c.position.sequence) for c in broker.checkpoints] == [(0, 0), (3, 3), (6, 6)]
    run(Script(reported=[*transaction(1, *range(7))]), broker, limits=Limits(largest=3))
    assert commits(broker)[-1] == (":1", 7)
    values = [orjson.loads(r.value) for r in broker.records if r.topic == "top.s.d.t" and r.value]
    assert [(v["after"]["id"], v["source"]["row"], v["transaction"]["total_order"]) for v in values] == [
        (i, i, i + 1) for i in range(7)
    ]
