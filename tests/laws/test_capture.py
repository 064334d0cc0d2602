"""Capture as a whole, without servers: for any crashes the log ends up with each change exactly once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from random import Random

import orjson
from hypothesis import given
from hypothesis import strategies as st

from cdc.model.errors import Retriable
from cdc.model.event import Position
from cdc.model.naming import change_topic, history_topic, schemas_topic
from cdc.model.schema import TableId
from ingest.capture.groups import Limits
from ingest.capture.observer import Observer
from ingest.capture.session import Session
from ingest.ddl.catalog import Catalog, ColumnDefinition, Key, TableDefinition
from ingest.ddl.dialect import dialect_of
from ingest.events.foreign_keys import ForeignKeys
from ingest.events.log_events import CaughtUp, LogEvent, RowsLogged, TransactionBegan, TransactionEnded
from ingest.events.tables import Tables
from ingest.log.memory_log import Broker, MemoryLog
from ingest.records.capture_interfaces import Checkpoint, Record, ServerTables, Stream
from ingest.records.chunk_requests import Chunk, ChunkRequest
from ingest.records.exact_phases import ExactPhases
from ingest.records.records import Recorder

UUID = "1e4be0df-e594-11f1-ae82-02fc00000001"
TABLE = TableId(source="s", database="d", table="t")
Row = dict[str, bool | int | float | str | None]
CATALOG = Catalog(
    databases={"d": "utf8mb4"},
    tables={
        ("d", "t"): TableDefinition(
            columns=(
                ColumnDefinition(name="id", column_type="int", nullable=False, charset=None),
                ColumnDefinition(name="v", column_type="int", nullable=True, charset=None),
            ),
            keys=(Key(name="PRIMARY", kind="primary", columns=("id",)),),
        )
    },
)
TOPIC = change_topic("top", TABLE)
# An operation puts a value under a key, deletes the key (None), or moves the row to another key (a tuple).
Change = tuple[Row | None, Row | None]
Operation = tuple[int, int | tuple[int] | None]
History = list[list[Operation]]


@dataclass
class Server:
    """A source whose transactions commit while it is being read: one more at every step of a reader."""

    history: History
    random: Random
    crash: float
    committed: int = 0
    steps: int = 0
    states: list[dict[int, int]] = field(default_factory=lambda: [{}])
    changes: list[list[Change]] = field(default_factory=list)

    def __post_init__(self) -> None:
        for transaction in self.history:
            state, changes = dict(self.states[-1]), list[Change]()
            for key, action in transaction:
                changes += self._apply(state, key, action)
            self.states.append(state)
            self.changes.append(changes)

    @staticmethod
    def _apply(state: dict[int, int], key: int, action: int | tuple[int] | None) -> Iterator[Change]:
        before: Row | None = {"id": key, "v": state[key]} if key in state else None
        if isinstance(action, tuple):
            if before is not None and action[0] not in state:
                state[action[0]] = state.pop(key)
                yield before, {"id": action[0], "v": state[action[0]]}
        elif action is not None:
            state[key] = action
            yield before, {"id": key, "v": action}
        elif before is not None:
            del state[key]
            yield before, None

    def step(self) -> None:
        """Change something at the server, and perhaps kill the reader."""
        self.steps += 1
        assert self.steps < 10_000, "capture does not come to an end"
        if self.random.random() < 0.5:
            self.committed = min(self.committed + 1, len(self.history))
        if self.random.random() < self.crash:
            raise Retriable("killed")

    def head(self) -> Position:
        self.step()
        gtids = f"{UUID}:1-{self.committed}" if self.committed else ""
        return Position(file="f", pos=self.committed, gtid_set=gtids, sequence=0)

    def seen(self) -> ServerTables:
        return ServerTables(catalog=CATALOG, dialect=dialect_of("mysql"))

    def release(self, position: Position) -> None:
        pass

    def foreign_keys(self) -> ForeignKeys:
        return ForeignKeys()

    def holds(self, position: Position) -> bool:
        return True

    @contextmanager
    def chunks(self) -> Iterator[Chunks]:
        yield Chunks(self)

    @contextmanager
    def stream(self, checkpoint: Checkpoint, tables: Tables, *, busy: bool) -> Iterator[Stream]:
        yield Reading(self, numbers(checkpoint))


@dataclass
class Chunks:
    """Reads two rows at a time, at any moment between the request and its delivery. Divides the rest of a table into
    ranges at keys that exist, that are gone, or that never existed."""

    server: Server
    asked: list[ChunkRequest] = field(default_factory=list)
    read: list[Chunk] = field(default_factory=list)

    def request(self, request: ChunkRequest) -> None:
        self.asked.append(request)

    def ready(self) -> list[Chunk]:
        server = self.server
        for request in self.asked[:]:
            if server.random.random() < 0.6:
                server.step()
                self.asked.remove(request)
                self.read.append(self._chunk(request))
        found = [chunk for chunk in self.read if server.random.random() < 0.7]
        self.read = [chunk for chunk in self.read if chunk not in found]
        return found

    def _chunk(self, request: ChunkRequest) -> Chunk:
        seen = self.server.committed
        assert seen >= (int(request.position.gtid_set.rpartition("-")[2]) if request.position.gtid_set else 0)
        state = self.server.states[seen]
        last = request.last[0] if request.last else max(state, default=0)
        rest = sorted(key for key in state if (not request.after or key > request.after[0]) and key <= last)
        after = [rest[1]] if len(rest) >= 2 else None
        cuts: list[int] = []
        if after and request.divide > 1:
            inside = range(after[0] + 1, last)
            most = min(len(inside), request.divide - 1)
            cuts = sorted(self.server.random.sample(inside, self.server.random.randint(0, most)))
        # the server continues between the SELECT and the query of its position
        self.server.step()
        gtids = f"{UUID}:1-{self.server.committed}" if self.server.committed else ""
        return Chunk(
            request=request,
            images=[{"id": key, "v": state[key]} for key in rest[:2]],
            after=after,
            last=[last],
            cuts=tuple([key] for key in cuts),
            high=Position(file="f", pos=self.server.committed, gtid_set=gtids, sequence=0),
        )


@dataclass
class Reading:
    """A reader of the log: transactions after the first `number` of them."""

    server: Server
    number: int

    @property
    def gtid_set(self) -> str:
        return f"{UUID}:1-{self.number}" if self.number else ""

    @property
    def place(self) -> tuple[str, int]:
        return "f", self.number

    @property
    def state(self) -> dict[str, object]:
        return {}

    def reached(self, position: Position) -> bool:
        return self.number >= position.pos

    def __iter__(self) -> Iterator[LogEvent]:
        server = self.server
        while True:
            server.step()
            if self.number >= server.committed:
                yield CaughtUp()
                continue
            number = self.number + 1
            yield TransactionBegan(f"{UUID}:{number}", number * 1_000_000, 1, "f", number)
            for before, after in server.changes[number - 1]:
                server.step()
                if before and after:
                    yield RowsLogged(TABLE, "update", [(before, after)], True, "f", number)
                else:
                    yield RowsLogged(TABLE, "insert" if after else "delete", [after or before], True, "f", number)
            self.number = number
            yield TransactionEnded("f", number)


class Dying(MemoryLog):
    """A log whose process dies now and then: before a commit, or after it but before the answer."""

    def __init__(self, broker: Broker, random: Random, crash: float) -> None:
        super().__init__(broker, schemas_topic("top"), history_topic("top"))
        self.random, self.crash = random, crash

    def append(self, record: Record) -> None:
        super().append(record)
        if self.random.random() < self.crash:
            raise Retriable("killed while appending")

    def commit(self, checkpoint: Checkpoint) -> None:
        if self.random.random() < self.crash:
            raise Retriable("killed before the commit")
        super().commit(checkpoint)
        if self.random.random() < self.crash:
            raise Retriable("killed before the commit was known")


def capture_all(history: History, seed: int, crash: float, rows: int, largest: int = 1000) -> tuple[Server, Broker]:
    """Run sessions until one has captured everything; crashes stop after a while so that it ends."""
    random, broker = Random(seed), Broker()
    server = Server(history=history, random=random, crash=crash)
    wanted = len(history)
    server.committed = random.randint(0, wanted)

    def finished() -> bool:
        done = broker.checkpoints and broker.checkpoints[-1].snapshot == "done"
        return bool(done and server.committed == wanted and numbers(broker.checkpoints[-1]) == wanted)

    for attempt in range(200):
        if attempt == 100:
            server.crash = crash = 0.0
        ticks = iter(range(10**9))
        session = Session(
            source=server,
            log=Dying(broker, random, crash),
            recorder=Recorder("top", phases=ExactPhases(lambda table: "")),
            tables=lambda seen: Tables("s", ["d"], lambda *name: name == ("d", "t"), seen.dialect),
            mode="initial",
            clock=lambda ticks=ticks: next(ticks) / 100,  # type: ignore[misc]  # a default argument binds the iterator
            stopped=finished,
            observer=Observer(),
            # with 0, rows of one table wait like those of thousands
            limits=Limits(rows=rows, linger=0.05, idle_commit=0.05, largest=largest, many=100 * (seed // 4 % 2)),
            parallel=1 + seed % 4,
        )
        try:
            session.run()
        except Retriable:
            continue
        if finished():
            return server, broker
    raise AssertionError("capture did not come to an end")


def numbers(checkpoint: Checkpoint) -> int:
    """Count the transactions that a checkpoint covers."""
    covered = checkpoint.position.gtid_set
    return int(covered.rpartition("-")[2].rpartition(":")[2]) if covered else 0


keys = st.one_of(st.integers(1, 4), st.integers(1, 20))
operations = st.tuples(keys, st.one_of(st.integers(0, 9), st.none(), st.tuples(keys)))
loads = st.lists(st.tuples(st.integers(1, 20), st.integers(0, 9)), max_size=20)  # rows for several ranges
histories = st.builds(
    lambda load, rest: [[*load], *rest], loads, st.lists(st.lists(operations, max_size=4), min_size=1, max_size=12)
)


@given(
    histories,
    st.integers(0, 2**32),
    st.sampled_from([0.0, 0.05, 0.2]),
    st.integers(1, 6),
    st.sampled_from([1, 2, 1000]),
)
def test_exactly_once_whatever_dies(history: History, seed: int, crash: float, rows: int, largest: int) -> None:
    """Each change after the low watermark is logged once, in order, without gaps, even if a transaction takes several
    commits; the final state is the source's."""
    server, broker = capture_all(history, seed, crash, rows, largest)
    first = broker.checkpoints[0]
    logged = [
        orjson.loads(record.value) for record in broker.records if record.topic == TOPIC and record.value is not None
    ]
    streamed = [value for value in logged if value["op"] != "r"]
    expected: list[tuple[str, Row | None, Row | None]] = []
    for number in range(numbers(first), len(history)):
        for before, after in server.changes[number]:
            if before and after and before["id"] != after["id"]:
                expected += [("d", before, None), ("c", None, after)]
            else:
                expected.append(("u" if before and after else "c" if after else "d", before, after))
    assert [(value["op"], value["before"], value["after"]) for value in streamed] == expected
    sequences = [value["source"]["sequence"] for value in streamed]
    assert sequences == list(range(1, len(expected) + 1))
    newest: dict[int, int] = {}
    for value in logged:  # a snapshot row never follows a change of its key that it does not contain
        row = value["after"] or value["before"]
        assert value["source"]["sequence"] >= newest.get(row["id"], 0)
        newest[row["id"]] = value["source"]["sequence"]
    state: dict[bytes, int] = {}
    for record in broker.records:
        if record.topic == TOPIC:
            after = orjson.loads(record.value)["after"] if record.value else None
            if after is None:
                state.pop(record.key, None)
            else:
                state[record.key] = after["v"]
    assert state == {orjson.dumps({"id": key}): value for key, value in server.states[-1].items()}


@given(histories, st.integers(0, 2**32), st.sampled_from([0.05, 0.2]))
def test_checkpoints_only_move_forward(history: History, seed: int, crash: float) -> None:
    """A checkpoint never moves back and is never inside a transaction; a finished snapshot stays finished."""
    server, broker = capture_all(history, seed, crash, 3)
    whole = {0}
    for before, after in pairwise(broker.checkpoints):
        assert numbers(before) <= numbers(after)
        assert before.position.sequence <= after.position.sequence
        assert (before.snapshot, after.snapshot) != ("done", "running")
    sequence = 0
    for number in range(numbers(broker.checkpoints[0]), len(history)):
        for old, new in server.changes[number]:
            sequence += 2 if old and new and old["id"] != new["id"] else 1
        whole.add(sequence)
    assert {checkpoint.position.sequence for checkpoint in broker.checkpoints} <= whole
