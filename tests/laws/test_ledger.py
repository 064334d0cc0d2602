"""The ledger with random histories: at every position that it covers, its leaves equal those of the source's table,
whatever is re-read, repeated, truncated or interrupted in between."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cdc.merkle.canonical import RowText, covered
from cdc.merkle.leaves import LeafOf, grid_of
from cdc.merkle.tree import Digest, Leaves, delta
from cdc.model.event import Position
from cdc.model.naming import TRUNCATE_KEY
from cdc.model.schema import Column, TableId, TableSchema
from ingest.ledger.fold import WINDOW_MS, LogRecord
from ingest.ledger.ledger import TopologyLedger
from ingest.ledger.sql_rows import SqlRows
from tests.laws.test_capture import TOPIC, UUID, History, capture_all, histories, numbers

SCHEMA = TableSchema(
    table_id=TableId(source="s", database="d", table="t"),
    version=1,
    columns=(Column(name="id", column_type="int"), Column(name="v", column_type="int")),
    primary_key=("id",),
)
COVERED = covered(SCHEMA)
TEXT, LEAF = RowText(COVERED.forms), LeafOf(grid_of(SCHEMA), COVERED)
State = dict[int, int]


def leaves_of(state: State) -> dict[int, Digest]:
    """Return the leaves of a table."""
    found = Leaves()
    for key, value in state.items():
        row = {"id": key, "v": value}
        found.add(LEAF(row), delta(None, TEXT.hash(row)))
    return found.digests


def at(number: int) -> Position:
    """Return the position after this many transactions."""
    return Position(file="f", pos=number + 1, gtid_set=f"{UUID}:1-{number}" if number else "", sequence=0)


@dataclass
class Kept:
    """A ledger of one table whose process may be killed: then the stores are reopened, and reading resumes."""

    partitions: int
    stores: dict[int, SqlRows] = field(default_factory=dict)
    topology_ledger: TopologyLedger = field(init=False)

    def __post_init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        self.topology_ledger = TopologyLedger(self._open, lambda table: ())
        self.topology_ledger.schema(SCHEMA, "topic")
        for number in range(self.partitions):
            self.topology_ledger.assigned("topic", number)

    def _open(self, topic: str, partition: int, shape: str) -> SqlRows:
        if partition not in self.stores:
            self.stores[partition] = SqlRows(Path(":memory:"), shape)
        return self.stores[partition]

    def read(self, logs: list[list[LogRecord]], random: Random, now_ms: int = 0) -> None:
        """Read all that the partitions hold, in batches, some of them repeatedly, with crashes."""
        waiting = list(range(self.partitions))
        while waiting:
            partition = random.choice(waiting)
            log, begin = logs[partition], self.stores[partition].next_offset
            if begin >= len(log):
                waiting.remove(partition)
                continue
            batch = log[begin : begin + random.randint(1, 6)]
            self.topology_ledger.records("topic", partition, batch, begin + len(batch), now_ms)
            if random.random() < 0.2:
                self.begin()

    def leaves(self, position: Position) -> dict[int, Digest]:
        """Return the leaves, as `verify` requests them."""
        partition_ledger = self.topology_ledger.tables[SCHEMA.table_id]
        return partition_ledger.as_of(0, partition_ledger.grid.last, position, position)[0].digests


@given(histories, st.integers(0, 2**32), st.sampled_from([0.0, 0.05, 0.2]), st.sampled_from([1, 2, 1000]))
def test_what_capture_writes(history: History, seed: int, crash: float, largest: int) -> None:
    """Capture crashes, with a snapshot during the traffic: every position after the complete snapshot is checked."""
    server, broker = capture_all(history, seed, crash, 3, largest)
    log = [
        LogRecord(number, record.key, record.value)
        for number, record in enumerate(one for one in broker.records if one.topic == TOPIC)
    ]
    ledger = Kept(1)
    ledger.read([log], Random(seed))
    assert ledger.topology_ledger.tables[SCHEMA.table_id].broken() is None
    whole = next(
        numbers(one) for one in broker.checkpoints if one.snapshot == "done" and not one.state.get("partial")
    )  # fmt: skip
    for number in range(whole, len(history) + 1):
        assert ledger.leaves(at(number)) == leaves_of(server.states[number]), number


@dataclass
class Model:
    """A source and the log of its capture, with everything that may occur in one; `states` by transaction."""

    random: Random
    partitions: int = 2
    states: list[State] = field(default_factory=lambda: [{}])
    logs: list[list[LogRecord]] = field(init=False)
    reported: list[tuple[int, bytes, bytes | None, int]] = field(default_factory=list)
    sequence: int = 0
    since: int = 0  # before this position a row was hidden, or a replay was at another place

    def __post_init__(self) -> None:
        self.logs = [[] for _ in range(self.partitions)]

    @property
    def number(self) -> int:
        return len(self.states) - 1

    def transaction(self, operations: list[tuple[int, int | None]]) -> None:
        state = dict(self.states[-1])
        for key, value in operations:
            before = {"id": key, "v": state[key]} if key in state else None
            after = None if value is None else {"id": key, "v": value}
            if before is None and after is None:
                continue
            state.pop(key, None)
            if value is not None:
                state[key] = value
            self._report(key, "d" if after is None else "u" if before else "c", before, after)
            if after is None:
                self._append(key, self._key(key), None, self.number + 1)
        self.states.append(state)

    def truncate(self) -> None:
        self.sequence += 1
        for partition in range(self.partitions):
            self._append(partition, TRUNCATE_KEY, self._value("t", None, None, self.number + 1), self.number + 1)
        self.states.append({})

    def read_again(self, hidden: dict[int, int | None]) -> None:
        """Change rows without log events, then re-read all rows in a snapshot, while another row changes."""
        state = dict(self.states[-1])
        state.update({key: value for key, value in hidden.items() if value is not None})
        for key, value in hidden.items():
            if value is None:
                state.pop(key, None)
        self.states[-1] = state
        self.sequence += 1
        marker = self.sequence
        for key, value in sorted(state.items()):
            if self.random.random() < 0.3:  # changed within the chunk's window: the row that was read is not published
                self.transaction([(key, value + 1)])
            else:
                self._read(key, {"id": key, "v": value})
        self.since = self.number
        for partition in range(self.partitions):
            self._append(partition, TRUNCATE_KEY, self._value("t", None, None, 0, sequence=marker), 0)

    def set_back(self) -> None:
        """Let capture repeat everything that it had published after a transaction, identically."""
        behind = self.random.randint(0, self.number)
        self.since = self.number
        for partition, key, value, number in list(self.reported):
            if number > behind:
                self._append(partition, key, value, number, again=True)

    def _read(self, key: int, row: dict[str, int]) -> None:
        self._append(key, self._key(key), self._value("r", None, row, 0), 0)

    def _report(self, key: int, op: str, before: Any, after: Any) -> None:
        self.sequence += 1
        self._append(key, self._key(key), self._value(op, before, after, self.number + 1), self.number + 1)

    def _append(self, key: int, name: bytes, value: bytes | None, number: int, *, again: bool = False) -> None:
        log = self.logs[key % self.partitions]
        log.append(LogRecord(len(log), name, value))
        if number and not again:
            self.reported.append((key % self.partitions, name, value, number))

    def _value(self, op: str, before: Any, after: Any, number: int, sequence: int | None = None) -> bytes:
        source = {
            "gtid": f"{UUID}:{number}" if number else None, "file": "f", "pos": number,
            "snapshot": "false" if number else "true", "sequence": self.sequence if sequence is None else sequence,
        }  # fmt: skip
        return orjson.dumps({"op": op, "before": before, "after": after, "source": source, "ts_ms": 1})

    @staticmethod
    def _key(key: int) -> bytes:
        return orjson.dumps({"id": key})


keys = st.integers(-2, 2).map(lambda key: key * 700)
values = st.one_of(st.none(), st.integers(0, 9))
steps = st.one_of(
    st.lists(st.tuples(keys, values), max_size=4),
    st.just("truncate"),
    st.dictionaries(keys, values, max_size=2),
    st.just("set back"),
)


@given(st.lists(steps, max_size=14), st.integers(0, 2**32), st.integers(1, 3))
@example([[(0, 0)], {0: None}, "set back"], 0, 1)  # rows deleted by a marker are published again
@example([[(0, 0), (0, None), (0, 0)], {}, "set back"], 2, 1)  # a repeated delete's tombstone
def test_whatever_a_log_may_hold(history: list[Any], seed: int, partitions: int) -> None:
    """Transactions, TRUNCATE, re-reads after hidden changes, replays, crashes of the ledger: at every position after
    the
    last unexplained change, the leaves are the table's; at the end in any case."""
    random = Random(seed)
    model = Model(random, partitions)
    ledger = Kept(partitions)
    for step in history:
        if step == "truncate":
            model.truncate()
        elif step == "set back":
            model.set_back()
        elif isinstance(step, dict):
            model.read_again(step)
        else:
            model.transaction(step)
        if random.random() < 0.4:
            ledger.read(model.logs, random)
            assert ledger.leaves(at(model.number)) == leaves_of(model.states[-1])
    ledger.read(model.logs, random)
    for number in range(model.since, model.number + 1):
        assert ledger.leaves(at(number)) == leaves_of(model.states[number]), number
    assert ledger.leaves(at(10**9)) == leaves_of(model.states[-1])


def test_places_are_forgotten_and_digests_stay() -> None:
    """After ten minutes a change has no position of its own any more; this does not change the leaf's content."""
    model, ledger = Model(Random(0), 1), Kept(1)
    model.transaction([(0, 1)])
    ledger.read(model.logs, Random(0), now_ms=1)
    assert ledger.leaves(at(0)) == {}
    model.transaction([(700, 1)])
    ledger.read(model.logs, Random(0), now_ms=2 + WINDOW_MS)
    assert ledger.leaves(at(0)) == ledger.leaves(at(2)) == leaves_of({0: 1, 700: 1})


def test_a_schema_that_changes_the_text_reads_all_again() -> None:
    """ADD COLUMN … DEFAULT changes every row at the source without a row's event: all rows are hashed again."""
    model, ledger = Model(Random(0), 2), Kept(2)
    model.transaction([(0, 1), (701, 2)])
    ledger.read(model.logs, Random(0))
    wider = TableSchema(
        table_id=SCHEMA.table_id,
        version=2,
        columns=(*SCHEMA.columns, Column(name="n", column_type="int", default=5, default_known=True)),
        primary_key=("id",),
    )
    assert sorted(ledger.topology_ledger.schema(wider, "topic")) == [("topic", 0), ("topic", 1)]
    assert {store.next_offset for store in ledger.stores.values()} == {0}
    text = RowText(covered(wider).forms)
    for partition, log in enumerate(model.logs):
        ledger.topology_ledger.records("topic", partition, log, len(log), 0)
    found = ledger.topology_ledger.tables[SCHEMA.table_id].total()
    assert found == delta(None, text.hash({"id": 0, "v": 1, "n": 5})) + delta(
        None, text.hash({"id": 701, "v": 2, "n": 5})
    )
    assert ledger.topology_ledger.schema(wider, "topic") == []


def _record(offset: int, key: object, op: str, after: object, sequence: int) -> LogRecord:
    value = {"op": op, "before": None, "after": after, "source": {"sequence": sequence}, "ts_ms": 0}
    return LogRecord(offset, TRUNCATE_KEY if op == "t" else orjson.dumps(key), orjson.dumps(value))


def test_records_under_an_old_key_are_forgotten_at_the_marker() -> None:
    """A table whose primary key changed, or whose values only the server could convert, becomes comparable again."""
    kept = Kept(partitions=1)
    old = [
        _record(0, {"old": 1}, "c", {"old": 1, "v": 1}, 1),
        _record(1, {"old": 2}, "d", None, 2),
        LogRecord(2, orjson.dumps({"old": 2}), None),
        _record(3, {"id": 1}, "c", {"id": 1, "v": "a label"}, 3),
    ]
    kept.topology_ledger.records("topic", 0, old, 4, 0)
    partition_ledger = kept.topology_ledger.tables[SCHEMA.table_id]
    assert partition_ledger.unread
    read = [_record(4, {"id": 1}, "r", {"id": 1, "v": 5}, 9), _record(5, None, "t", None, 8)]
    kept.topology_ledger.records("topic", 0, read, 6, 0)
    assert partition_ledger.unread == 0
    assert partition_ledger.total().count == 1
    late = [_record(6, {"id": 2}, "c", {"id": 2, "v": "a label"}, 10), _record(7, None, "t", None, 9)]
    kept.topology_ledger.records("topic", 0, late, 8, 0)
    assert partition_ledger.unread == 1


def _exact(offset: int, op: str, before: object, after: object, sequence: int, ts_ms: int = 0) -> LogRecord:
    source = {"sequence": sequence, "exact": 1}
    value = {"op": op, "before": before, "after": after, "source": source, "ts_ms": ts_ms}
    return LogRecord(offset, orjson.dumps({"id": 1}), orjson.dumps(value))


ONE, TWO, THREE = ({"id": 1, "v": number} for number in (1, 2, 3))


@pytest.mark.parametrize(
    "planted",
    [
        _exact(1, "u", THREE, TWO, 2),
        _exact(1, "u", None, TWO, 2),
        _exact(1, "c", None, TWO, 2),
        _exact(1, "d", THREE, None, 2),
    ],
)
def test_a_wrong_before_image_of_an_exact_change_is_found(planted: LogRecord) -> None:
    """The ledger counts it and keeps its offset, also after a restart. A snapshot of the table ends the doubt."""
    kept = Kept(partitions=1)
    kept.topology_ledger.records("topic", 0, [_exact(0, "c", None, ONE, 1)], 1, 0)
    partition_ledger = kept.topology_ledger.tables[SCHEMA.table_id]
    assert partition_ledger.broken() is None
    kept.topology_ledger.records("topic", 0, [planted], 2, 0)
    kept.begin()
    partition_ledger = kept.topology_ledger.tables[SCHEMA.table_id]
    assert partition_ledger.broken() == (1, 0, 1)
    kept.topology_ledger.records("topic", 0, [_exact(2, "d", ONE, None, 3)], 3, 0)
    assert partition_ledger.broken() == (2, 0, 2)
    kept.topology_ledger.records("topic", 0, [_record(3, None, "t", None, 4)], 4, 0)
    assert partition_ledger.broken() is None


def test_a_delete_of_a_row_that_the_log_does_not_contain_is_found() -> None:
    """An exact delete of a row without an earlier record is found, too."""
    kept = Kept(partitions=1)
    kept.topology_ledger.records("topic", 0, [_exact(0, "d", ONE, None, 1)], 1, 0)
    assert kept.topology_ledger.tables[SCHEMA.table_id].broken() == (1, 0, 0)


def test_old_and_repeated_changes_are_not_checked() -> None:
    """Compaction may have removed the last image of an old change. A repeated record is skipped as a whole."""
    kept = Kept(partitions=1)
    now = 10 * WINDOW_MS
    young = [_exact(1, "c", None, ONE, 2, now), _exact(2, "u", ONE, TWO, 3, now), _exact(3, "c", None, ONE, 2, now)]
    kept.topology_ledger.records("topic", 0, [_exact(0, "d", THREE, None, 1, now - WINDOW_MS - 1), *young], 4, now)
    assert kept.topology_ledger.tables[SCHEMA.table_id].broken() is None
