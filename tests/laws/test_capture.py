"""Capture as a whole, without servers: whatever is killed whenever, the log ends up with each change exactly once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from random import Random

import orjson
from hypothesis import given
from hypothesis import strategies as st

from cdc.errors import Retriable
from cdc.event import Position, Row
from cdc.naming import change_topic, schemas_topic
from cdc.schema import Column, TableId, TableSchema
from ingest.agent.capture import Limits, Observer, Session
from ingest.agent.facts import CaughtUp, Change, Fact, Image, RowsLogged, TransactionBegan, TransactionEnded
from ingest.agent.gtids import GtidSet
from ingest.agent.memory_log import Broker, MemoryLog
from ingest.agent.records import Recorder
from ingest.agent.seams import Checkpoint, Record

UUID = "1e4be0df-e594-11f1-ae82-02fc00000001"
TABLE = TableId(source="s", database="d", table="t")
SCHEMA = TableSchema(
    table_id=TABLE,
    version=1,
    columns=(Column(name="id", column_type="int", nullable=False), Column(name="v", column_type="int")),
    primary_key=("id",),
)
TOPIC = change_topic("top", TABLE)
# An operation puts a value under a key, deletes the key (None), or moves the row to another key (a tuple).
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
        """Something else happens at the server, and the reader may die."""
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

    def schemas(self, known: Mapping[TableId, TableSchema]) -> Mapping[TableId, TableSchema]:
        return {TABLE: SCHEMA}

    @contextmanager
    def snapshot(self, schemas: Mapping[TableId, TableSchema]) -> Iterator[Iterator[tuple[TableSchema, list[Image]]]]:
        rows: list[Image] = [{"id": key, "v": value} for key, value in self.states[self.committed].items()]

        def pages() -> Iterator[tuple[TableSchema, list[Image]]]:
            for i in range(0, len(rows), 2):
                self.step()
                yield SCHEMA, rows[i : i + 2]

        yield pages()

    @contextmanager
    def stream(self, position: Position, schemas: Mapping[TableId, TableSchema]) -> Iterator[Iterator[Fact]]:
        yield self._facts(GtidSet(position.gtid_set))

    def _facts(self, read: GtidSet) -> Iterator[Fact]:
        number = 0
        while True:
            self.step()
            if number >= self.committed:
                yield CaughtUp()
                continue
            number += 1
            gtid = f"{UUID}:{number}"
            if gtid in read:
                continue
            yield TransactionBegan(gtid=gtid, commit_us=number * 1_000_000, server_id=1)
            for change in self.changes[number - 1]:
                self.step()
                yield RowsLogged(schema=SCHEMA, changes=(change,), file="f", pos=number)
            yield TransactionEnded(file="f", pos=number)


class Dying(MemoryLog):
    """A log whose process dies now and then: before a commit, or after it but before the answer."""

    def __init__(self, broker: Broker, random: Random, crash: float) -> None:
        super().__init__(broker, schemas_topic("top"))
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


def capture_all(history: History, seed: int, crash: float, rows: int) -> tuple[Server, Broker]:
    """Sessions until one has captured everything; crashes stop after a while so that it ends."""
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
            recorder=Recorder("top"),
            mode="initial",
            clock=lambda ticks=ticks: next(ticks) / 100,  # type: ignore[misc]  # a default argument binds the iterator
            stopped=finished,
            observer=Observer(),
            limits=Limits(rows=rows, linger=0.05, idle_commit=0.05),
        )
        try:
            session.run()
        except Retriable:
            continue
        if finished():
            return server, broker
    raise AssertionError("capture did not come to an end")


def numbers(checkpoint: Checkpoint) -> int:
    """How many transactions a checkpoint covers."""
    covered = checkpoint.position.gtid_set
    return int(covered.rpartition("-")[2].rpartition(":")[2]) if covered else 0


keys = st.integers(1, 4)
operations = st.tuples(keys, st.one_of(st.integers(0, 9), st.none(), st.tuples(keys)))
histories = st.lists(st.lists(operations, max_size=4), min_size=1, max_size=12)


@given(histories, st.integers(0, 2**32), st.sampled_from([0.0, 0.05, 0.2]), st.integers(1, 6))
def test_exactly_once_whatever_dies(history: History, seed: int, crash: float, rows: int) -> None:
    """Each change behind the low watermark is logged once, in order, without gap; the state is the source's."""
    server, broker = capture_all(history, seed, crash, rows)
    first = broker.checkpoints[0]
    logged = [
        orjson.loads(record.value) for record in broker.records if record.topic == TOPIC and record.value is not None
    ]
    streamed = [value for value in logged if value["op"] != "r"]
    expected: list[tuple[str, Row | None, Row | None]] = []
    for number in range(numbers(first), len(history)):
        for before, after in server.changes[number]:
            assert isinstance(before, dict | None)
            assert isinstance(after, dict | None)
            if before and after and before["id"] != after["id"]:
                expected += [("d", before, None), ("c", None, after)]
            else:
                expected.append(("u" if before and after else "c" if after else "d", before, after))
    assert [(value["op"], value["before"], value["after"]) for value in streamed] == expected
    sequences = [value["source"]["sequence"] for value in streamed]
    assert sequences == list(range(1, len(expected) + 1))
    assert all(value["source"]["sequence"] == 0 for value in logged if value["op"] == "r")
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
    """A checkpoint never falls back, never stands inside a transaction, and every attempt keeps the first watermark."""
    server, broker = capture_all(history, seed, crash, 3)
    whole = {0}
    for before, after in pairwise(broker.checkpoints):
        assert numbers(before) <= numbers(after)
        assert before.position.sequence <= after.position.sequence
        assert (before.snapshot, after.snapshot) != ("done", "running")
        if after.snapshot == "running":
            assert after.position == before.position
    sequence = 0
    for number in range(numbers(broker.checkpoints[0]), len(history)):
        for old, new in server.changes[number]:
            assert isinstance(old, dict | None)
            assert isinstance(new, dict | None)
            sequence += 2 if old and new and old["id"] != new["id"] else 1
        whole.add(sequence)
    assert {checkpoint.position.sequence for checkpoint in broker.checkpoints} <= whole


intervals = st.tuples(st.integers(1, 60), st.integers(0, 5))


@given(st.lists(intervals), st.lists(st.integers(1, 60)))
def test_gtid_set_is_a_set(spans: list[tuple[int, int]], added: list[int]) -> None:
    """A GTID set holds what was put in, however it was put in, and its text reads back as the same set."""
    text = ",".join(f"{UUID}:{low}-{low + size}" for low, size in spans)
    gtids, model = GtidSet(text), {n for low, size in spans for n in range(low, low + size + 1)}
    for number in added:
        gtids.add(f"{UUID}:{number}")
        model.add(number)
    assert {n for n in range(1, 80) if f"{UUID}:{n}" in gtids} == model
    one_by_one = GtidSet()
    for number in sorted(model, key=lambda n: n * 7919 % 61):
        one_by_one.add(f"{UUID.upper()}:{number}")
    assert str(GtidSet(str(gtids))) == str(gtids) == str(one_by_one)
