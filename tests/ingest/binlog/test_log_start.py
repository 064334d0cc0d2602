"""A capture that begins at an older position of a written log: which tables it decodes, skips and reads.

`test_capture_from.py` does the same on real servers.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import orjson
import pytest

from cdc.model.errors import UsageError
from cdc.model.event import Position
from cdc.model.naming import change_topic, history_topic, schemas_topic
from cdc.model.schema import TableId
from ingest.binlog import BinlogPosition, BinlogReader, StreamOptions
from ingest.binlog.format.codes import ColumnType as T
from ingest.binlog.format.columns import LoggedColumn
from ingest.binlog.format.gtid import GtidSet, parse_gtid_set
from ingest.binlog.writer.writer import BinlogWriter
from ingest.capture.groups import Limits
from ingest.capture.observer import Observer
from ingest.capture.session import Session
from ingest.ddl.catalog import Catalog, ColumnDefinition, Key, TableDefinition
from ingest.ddl.dialect import dialect_of
from ingest.events.foreign_keys import ForeignKeys
from ingest.events.log_events import CaughtUp, LogEvent
from ingest.events.log_place import parse_place
from ingest.events.log_scan import LogStart, start_of
from ingest.events.logged import ENVELOPE, BinlogEvents
from ingest.events.tables import Tables
from ingest.log.memory_log import Broker, MemoryLog
from ingest.records.capture_interfaces import Checkpoint, PositionLost, ServerTables, Stream
from ingest.records.chunk_requests import Chunk, ChunkRequest
from ingest.records.records import Recorder

UUID = "1e4be0df-e594-11f1-ae82-02fc00000001"
NAMES = ("plain", "full", "late", "fresh")
T0 = 1_700_000_000


def columns(*names: str) -> list[LoggedColumn]:
    return [
        LoggedColumn(index=at, name=name, type=T.LONG, named=True, unsigned=False, nullable=name != "id")
        for at, name in enumerate(names)
    ]


def definition(*names: str) -> TableDefinition:
    shown = tuple(ColumnDefinition(name=name, column_type="int", nullable=name != "id", charset=None) for name in names)
    return TableDefinition(columns=shown, keys=(Key(name="PRIMARY", kind="primary", columns=("id",)),))


@dataclass
class WrittenServer:
    """A server of one log file and the tables at its end; a snapshot finds the `rows`."""

    parts: list[bytes] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)  # where transaction n (from 0) begins
    rows: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    tables: dict[str, TableDefinition] = field(default_factory=dict)
    over: bool = False
    purged: bool = False  # the next stream finds that its log is gone
    gtids: bool = True  # each transaction begins with its GTID
    reads: int = 1_000_000  # after so many events, the search for a start is stopped
    asked: list[ChunkRequest] = field(default_factory=list)
    checksum = 0
    reconnects = False
    selects_gtids = False
    buffer = None

    def __post_init__(self) -> None:
        self.writer = BinlogWriter(checksum=False)
        self.parts.append(self.writer.begin(T0, GtidSet()))

    def start(self, begin: str, seen: ServerTables, head: Position, tables: Tables) -> LogStart | None:
        """Return the start of a capture, as `mysql_log_start` does."""
        reader, left = self.reader(BinlogPosition(file="f.000001", position=4), tables), iter(range(self.reads))
        return start_of(
            reader, parse_place(begin), "f.000001", seen.dialect, seen.catalog, head, tables,
            now_micros=(T0 + 3600) * 1_000_000, stopped=lambda: next(left, None) is None,
        )  # fmt: skip

    def statement(self, sql: str) -> None:
        """Log a statement. The n-th transaction (from 1) commits n seconds after T0."""
        self._begin()
        self.parts.append(self.writer.query("d", sql, T0))

    def change(self, table: str, operation: Any, *rows: Any, named: bool = False) -> None:
        """Log changed rows; `named`: with FULL metadata, otherwise MINIMAL."""
        names = tuple(rows[0][0] if operation == "update" else rows[0])
        known = columns(*names)
        number = NAMES.index(table) + 1
        self._begin()
        self.parts.append(self.writer.query("d", "BEGIN", T0))
        mapped = self.writer.table_map(number, "d", table, known, T0, [0])
        if not named:  # without names and key, the last two fields
            size = sum(2 + len(part) for part in (bytes([0]), b"".join(b"." + n.encode() for n in names)))
            self.writer.position -= len(mapped)
            mapped = self.writer.event(19, mapped[19:-size], T0)
        self.parts.append(mapped)
        self.parts.append(self.writer.rows(operation, number, known, rows, T0))
        self.parts.append(self.writer.xid(1, T0))

    def _begin(self) -> None:
        self.offsets.append(self.writer.position)
        number = len(self.offsets)
        if not self.gtids:
            return
        self.parts.append(self.writer.gtid(UUID, number, T0 + number, commit_us=(T0 + number) * 1_000_000))

    # the log
    def packets(self, start: BinlogPosition) -> Any:
        data, at = b"".join(self.parts), 4
        while at < len(data):
            size = struct.unpack_from("<I", data, at + 9)[0]
            if at >= start.position or data[at + 4] in (15, 35):  # format description and PREVIOUS_GTIDS come first
                yield data[at : at + size], "f.000001", at, at + size
            at += size

    def wait(self, attempt: int) -> None: ...

    def close(self) -> None: ...

    def reader(self, start: BinlogPosition, tables: Tables, **options: Any) -> BinlogReader:
        return BinlogReader(self, start, StreamOptions(tables=tables.captured, **options))

    # the server
    def head(self) -> Position:
        gtids = f"{UUID}:1-{len(self.offsets)}" if self.offsets else ""
        return Position(file="f.000001", pos=self.writer.position, gtid_set=gtids, sequence=0)

    def seen(self) -> ServerTables:
        shown = Catalog(databases={"d": "utf8mb4"}, tables={("d", name): one for name, one in self.tables.items()})
        return ServerTables(catalog=shown, dialect=dialect_of("mysql"))

    def release(self, position: Position) -> None: ...

    def foreign_keys(self) -> ForeignKeys:
        return ForeignKeys()

    def holds(self, position: Position) -> bool:
        return True

    @contextmanager
    def chunks(self) -> Iterator[WrittenServer]:
        yield self

    def request(self, request: ChunkRequest) -> None:
        self.asked.append(request)

    def ready(self) -> list[Chunk]:
        asked, self.asked = self.asked, []
        return [
            Chunk(
                request=one, images=[dict(row) for row in self.rows[one.schema.table_id.table]], after=None, last=[99],
                high=self.head(),
            )
            for one in asked
        ]  # fmt: skip

    @contextmanager
    def stream(self, checkpoint: Checkpoint, tables: Tables, *, busy: bool) -> Iterator[Stream]:
        at = checkpoint.position
        if self.purged:
            self.purged = False
            raise PositionLost("the server has purged the log", "take a new snapshot")
        gtids = parse_gtid_set(at.gtid_set) if at.gtid_set else GtidSet()
        start = BinlogPosition(file=at.file, position=at.pos, gtids=gtids)
        reader = self.reader(start, tables, flavour=ENVELOPE, schema=tables)
        yield Idle(BinlogEvents(reader, tables, lambda: True, checkpoint.state), self, checkpoint)


class Idle:
    """A stream that is idle at the log's end, until nothing is left to do."""

    def __init__(self, events: BinlogEvents, server: WrittenServer, begun: Checkpoint) -> None:
        self._events, self._server, self._begun = events, server, begun

    def __iter__(self) -> Iterator[LogEvent]:
        yield from self._events
        for _ in range(20):
            yield CaughtUp()
        self._server.over = True
        yield CaughtUp()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._events, name)


@dataclass
class Run:
    """A capture of the server into a log in memory."""

    server: WrittenServer
    broker: Broker = field(default_factory=Broker)
    said: list[tuple[str, dict[str, object]]] = field(default_factory=list)
    now: float = T0

    def run(self, begin: str, mode: Any = "initial", commits: int = 1000) -> Run:
        """Capture from a place until everything is read, or so many checkpoints are stored."""
        self.server.over = False
        observer = Observer()
        observer.phase = lambda what, **details: self.said.append((what, details))  # type: ignore[method-assign]
        Session(
            source=self.server, log=MemoryLog(self.broker, schemas_topic("top"), history_topic("top")),
            recorder=Recorder("top"), tables=tables_of, mode=mode, clock=self._clock,
            stopped=lambda: self.server.over or len(self.broker.checkpoints) >= commits, observer=observer,
            limits=Limits(ask=0.0), start=lambda seen, head, tables: self.server.start(begin, seen, head, tables),
        ).run()  # fmt: skip
        return self

    def _clock(self) -> float:
        self.now += 0.05
        return self.now

    def events(self, table: str) -> list[tuple[str, Any, Any]]:
        topic = change_topic("top", TableId(source="s", database="d", table=table))
        found = [orjson.loads(r.value) for r in self.broker.records if r.topic == topic and r.value is not None]
        return [(one["op"], one["before"], one["after"]) for one in found if one["op"] != "t"]


def tables_of(seen: ServerTables) -> Tables:
    return Tables("s", ["d"], lambda database, table: database == "d" and table in NAMES, seen.dialect)


def start(server: WrittenServer, place: str) -> LogStart:
    found = server.start(place, server.seen(), server.head(), tables_of(server.seen()))
    assert found is not None
    return found


@pytest.fixture
def server() -> WrittenServer:
    """Transactions 1 and 2 are older than the position, the others came after it."""
    made = WrittenServer()
    made.change("plain", "insert", {"id": 1, "v": 1})
    made.statement("ALTER TABLE plain ADD w INT")
    made.change("plain", "insert", {"id": 2, "v": 2, "w": 3})
    made.change("full", "insert", {"id": 1, "a": 10, "b": 20}, named=True)
    made.statement("ALTER TABLE full CHANGE a c INT")
    made.change("full", "update", ({"id": 1, "c": 10, "b": 20}, {"id": 1, "c": 11, "b": 20}))
    made.change("late", "insert", {"id": 1, "a": 10, "b": 20})
    made.statement("ALTER TABLE late CHANGE a b INT, CHANGE b a INT")
    made.change("late", "insert", {"id": 2, "b": 1, "a": 2})
    made.statement("CREATE TABLE fresh (id INT PRIMARY KEY, v INT)")
    made.change("fresh", "insert", {"id": 1, "v": 4})
    made.tables = {
        "plain": definition("id", "v", "w"), "full": definition("id", "c", "b"),
        "late": definition("id", "b", "a"), "fresh": definition("id", "v"),
    }  # fmt: skip
    made.rows = {
        "plain": [{"id": 1, "v": 1, "w": None}, {"id": 2, "v": 2, "w": 3}], "full": [{"id": 1, "c": 11, "b": 20}],
        "late": [{"id": 1, "b": 10, "a": 20}, {"id": 2, "b": 1, "a": 2}], "fresh": [{"id": 1, "v": 4}],
    }  # fmt: skip
    return made


PLACES = {"gtid": f"{UUID}:1-2", "time": "2023-11-14T22:13:23Z"}
LOGGED = {
    "plain": [("c", None, {"id": 2, "v": 2, "w": 3})],
    "full": [("c", None, {"id": 1, "a": 10, "b": 20}), ("u", {"id": 1, "c": 10, "b": 20}, {"id": 1, "c": 11, "b": 20})],
    "late": [],
    "fresh": [("c", None, {"id": 1, "v": 4})],
}


@pytest.mark.parametrize("mode", ["initial", "never"])
@pytest.mark.parametrize("place", ["gtid", "time", "position"])
def test_each_table_is_decoded_as_far_as_the_log_states_its_columns(
    server: WrittenServer, place: str, mode: str
) -> None:
    """Unaltered tables by their columns of today, altered ones by FULL metadata, new ones by their CREATE. The table
    whose columns changed places is skipped, reported, and read at the log's end."""
    begin = PLACES.get(place, f"f.000001:{server.offsets[2]}")
    run = Run(server).run(begin, mode)
    for name in NAMES:
        logged = [event for event in run.events(name) if event[0] != "r"]
        read = [event[2] for event in run.events(name) if event[0] == "r"]
        assert (name, logged) == (name, LOGGED[name])
        assert (name, read) == (name, server.rows[name] if mode == "initial" or name == "late" else [])
    why = f"its columns before f.000001:{server.offsets[8]}"
    [skipped] = [details for what, details in run.said if "is skipped" in what]
    assert skipped["table"] == "d.late"
    assert why in str(skipped["why"])
    assert not start(server, why.split()[-1]).later
    newest = run.broker.checkpoints[-1]
    assert (newest.snapshot, newest.position.gtid_set, "from" in newest.state) == ("done", f"{UUID}:1-11", False)
    assert run.broker.checkpoints[0].position.gtid_set == f"{UUID}:1-2"
    assert run.broker.checkpoints[0].snapshot == "running"
    assert not [record for record in run.broker.records if record.topic == "top.quarantine"]


def test_later_changes_and_restarts(server: WrittenServer) -> None:
    """A capture that reached the end continues with the server's columns; `--from` of a restart has no effect."""
    run = Run(server).run(PLACES["gtid"])
    server.change("late", "insert", {"id": 3, "b": 5, "a": 6})
    run.run(f"{UUID}:1-4")
    assert run.events("late")[-1] == ("c", None, {"id": 3, "b": 5, "a": 6})
    assert len(run.events("plain")) == 3
    assert any("has begun before" in what for what, _ in run.said)


@pytest.mark.parametrize("commits", range(1, 10))
def test_a_capture_that_was_stopped_on_its_way_loses_nothing(server: WrittenServer, commits: int) -> None:
    """The skipped tables and the awaited end are part of the checkpoint: the next session continues, without --from."""
    run = Run(server).run(PLACES["gtid"], commits=commits)
    assert not run.events("late") or commits >= 8
    run.run("")
    for name in NAMES:
        assert [event for event in run.events(name) if event[0] != "r"] == LOGGED[name]
        assert {str(event[2]) for event in run.events(name) if event[0] == "r"} == set(map(str, server.rows[name]))
    assert run.broker.checkpoints[-1].snapshot == "done"


def test_if_the_log_is_purged_on_the_way_all_tables_are_read(server: WrittenServer) -> None:
    """The skipped table is captured again, too, and its next changes are published."""
    run = Run(server).run(PLACES["gtid"], commits=2)
    server.purged = True
    run.run("")
    server.change("late", "insert", {"id": 3, "b": 5, "a": 6})
    run.run("")
    for name in NAMES:
        assert [event[2] for event in run.events(name) if event[0] == "r"] == server.rows[name]
    assert run.events("late")[-1] == ("c", None, {"id": 3, "b": 5, "a": 6})


@pytest.mark.parametrize("transactions", range(12))
def test_every_position_of_the_log(server: WrittenServer, transactions: int) -> None:
    """From any transaction on, no row has wrong columns: what is published is a part of what the statements did."""
    run = Run(server).run(f"{UUID}:1-{transactions}" if transactions else "1970-01-01T00:00:00")
    everything: dict[str, Any] = {**LOGGED, "late": [("c", None, {"id": 2, "b": 1, "a": 2})]}
    for name in NAMES:
        logged = [event for event in run.events(name) if event[0] != "r"]
        assert all(event in everything[name] or event[2] == {"id": 1, "v": 1} for event in logged), name
        assert [event[2] for event in run.events(name) if event[0] == "r"] == server.rows[name]


@pytest.mark.parametrize(
    ("altered", "named", "decodable"),
    [
        ("ALTER TABLE late ADD x INT", False, False),
        ("ALTER TABLE late ADD x INT", True, True),
        ("alter table `late` rename to other", False, False),
        ("TRUNCATE TABLE late", False, True),
        ("INSERT INTO plain SELECT 'late'", False, True),
        ("CREATE INDEX i ON late (a)", False, False),
        ("ALTER DATABASE d CHARACTER SET latin1", False, False),
        ("DROP DATABASE d", False, False),
        ("CREATE TABLE other (id INT)", False, True),
        ("RENAME TABLE other TO late", False, False),
    ],
)
def test_statements_that_may_change_columns(altered: str, named: bool, decodable: bool) -> None:
    """Every statement that might have changed a table makes its earlier rows undecodable without FULL metadata."""
    server = WrittenServer(tables={"late": definition("id", "a")})
    server.change("late", "insert", {"id": 1, "a": 2}, named=named)
    server.statement(altered)
    assert (("d", "late") not in start(server, "1970-01-01T00:00:00").later) is decodable


def test_a_position_inside_a_transaction_is_refused(server: WrittenServer) -> None:
    """The remedy is the beginning of the next transaction."""
    with pytest.raises(UsageError, match="inside a transaction") as refused:
        Run(server).run(f"f.000001:{server.offsets[3] + 70}")
    assert refused.value.hint == f"choose f.000001:{server.offsets[4]}, where the next transaction begins"


def test_a_place_after_the_log_is_refused(server: WrittenServer) -> None:
    """Capture would otherwise begin at the log's end, as if nothing had been asked for."""
    head = server.head()
    for place in (f"{UUID}:1-9999", f"{head.file}:{head.pos + 100}"):
        with pytest.raises(UsageError, match=r"does not contain all of|no transaction of the log begins"):
            Run(server).run(place)
    Run(server).run(f"{head.file}:{head.pos}")


def test_a_position_inside_the_last_transaction_is_refused(server: WrittenServer) -> None:
    """No later transaction shows that it is inside one."""
    with pytest.raises(UsageError, match=r"inside a transaction|no transaction of the log begins"):
        Run(server).run(f"f.000001:{server.offsets[-1] + 70}")


def test_a_time_in_the_future_is_refused(server: WrittenServer) -> None:
    """The error names what was asked, and what the log has. A time since the last transaction is the log's end."""
    with pytest.raises(UsageError) as refused:
        Run(server).run("2023-11-15T22:13:20")
    assert str(refused.value) == (
        "2023-11-15T22:13:20 is in the future; from f.000001 on, the log has transactions from 2023-11-14T22:13:21Z to "
        "2023-11-14T22:13:31Z; choose an earlier time, or start without --from"
    )
    assert start(server, "2023-11-14T23:00:00").position == server.head()


def test_a_log_without_gtid_events_is_refused() -> None:
    """The begin of its transactions is not searched for, so capture would begin at the log's end."""
    server = WrittenServer(gtids=False)
    assert start(server, "1970-01-01T00:00:00").position == server.head()  # there is no transaction
    server.change("plain", "insert", {"id": 1, "v": 1})
    for place in ("1970-01-01T00:00:00", "f.000001:4"):
        with pytest.raises(UsageError, match=f"cannot find {place}: the transactions from f.000001 on have no GTID"):
            Run(server).run(place)


@pytest.mark.parametrize("reads", [0, 1, 20])
def test_the_search_for_a_place_can_be_stopped(server: WrittenServer, reads: int) -> None:
    """Nothing is committed, so that the next start searches again."""
    server.reads = reads
    run = Run(server).run(PLACES["gtid"])
    assert (run.broker.checkpoints, run.broker.records) == ([], [])
    server.reads = 1_000_000
    assert run.run(PLACES["gtid"]).broker.checkpoints
