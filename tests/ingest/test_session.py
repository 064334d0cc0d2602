"""One session of capture against a scripted source: what is committed when, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import orjson
import pytest

from cdc.errors import Fatal, Retriable
from cdc.event import Position
from cdc.naming import schemas_topic
from cdc.schema import Column, TableId, TableSchema
from cdc.topology import SnapshotMode
from ingest.agent.capture import Limits, Observer, Session
from ingest.agent.facts import CaughtUp, Fact, Image, RowsLogged, TransactionBegan, TransactionEnded
from ingest.agent.memory_log import Broker, MemoryLog
from ingest.agent.records import Recorder

UUID = "1e4be0df-e594-11f1-ae82-02fc00000001"
SCHEMA = TableSchema(
    table_id=TableId(source="s", database="d", table="t"),
    version=1,
    columns=(Column(name="id", column_type="int"),),
    primary_key=("id",),
)


@dataclass
class Script:
    """A source that tells what it is given: tables, pages of rows, then facts; a float lets so many seconds pass."""

    told: list[Fact | float | Exception] = field(default_factory=list)
    pages: list[list[Image]] = field(default_factory=list)
    tables: dict[TableId, TableSchema] = field(default_factory=lambda: {SCHEMA.table_id: SCHEMA})
    altered: bool = False
    now: float = 1000.0
    over: bool = False

    def head(self) -> Position:
        return Position(file="f", pos=4, gtid_set="", sequence=0)

    def schemas(self, known: Mapping[TableId, TableSchema]) -> Mapping[TableId, TableSchema]:
        return {t: replace(s, version=2) if self.altered else s for t, s in self.tables.items()}

    @contextmanager
    def snapshot(self, schemas: Mapping[TableId, TableSchema]) -> Iterator[Iterator[tuple[TableSchema, list[Image]]]]:
        yield ((SCHEMA, page) for page in self.pages)

    @contextmanager
    def stream(self, position: Position, schemas: Mapping[TableId, TableSchema]) -> Iterator[Iterator[Fact]]:
        yield self._facts()

    def _facts(self) -> Iterator[Fact]:
        for fact in self.told:
            if isinstance(fact, float):
                self.now += fact
            elif isinstance(fact, Exception):
                raise fact
            else:
                yield fact
        self.over = True
        yield CaughtUp()


def transaction(number: int, *ids: int) -> list[Fact]:
    rows = [RowsLogged(schema=SCHEMA, changes=((None, {"id": i}),), file="f", pos=number) for i in ids]
    began = TransactionBegan(gtid=f"{UUID}:{number}", commit_us=number, server_id=1)
    return [began, *rows, TransactionEnded(file="f", pos=number)]


def run(script: Script, broker: Broker, mode: SnapshotMode = "never", limits: Limits | None = None) -> None:
    Session(
        source=script,
        log=MemoryLog(broker, schemas_topic("top")),
        recorder=Recorder("top"),
        mode=mode,
        clock=lambda: script.now,
        stopped=lambda: script.over,
        observer=Observer(),
        limits=limits or Limits(),
    ).run()


def commits(broker: Broker) -> list[tuple[str, int]]:
    return [(c.position.gtid_set.removeprefix(UUID), c.position.sequence) for c in broker.checkpoints]


def test_an_idle_source_is_committed_at_once_a_busy_one_in_groups() -> None:
    """A lone transaction waits for nothing; transactions that stand in line share a commit, whole."""
    broker = Broker()
    alone = [*transaction(1, 10), CaughtUp()]
    in_line = [*transaction(2, 11), *transaction(3, 12, 13), CaughtUp()]
    run(Script(told=[*alone, *in_line]), broker)
    assert commits(broker) == [("", 0), (":1", 1), (":1-3", 4)]


def test_a_group_ends_at_its_limits() -> None:
    """Rows and time bound a group, at a transaction's end and never inside one."""
    broker = Broker()
    told = [*transaction(1, 1, 2, 3), *transaction(2, 4), 0.05, *transaction(3, 5), *transaction(4, 6)]
    run(Script(told=list(told)), broker, limits=Limits(rows=3, linger=0.03))
    assert commits(broker) == [("", 0), (":1", 3), (":1-3", 5), (":1-4", 6)]
    broker = Broker()
    slow: list[Fact | float | Exception] = [*transaction(1, 1), *transaction(2, 2)[:-1], 0.05, transaction(2)[-1]]
    run(Script(told=[*slow, *transaction(3, 3)]), broker)
    assert commits(broker) == [("", 0), (":1-2", 2), (":1-3", 3)]


def test_foreign_changes_move_the_position_now_and_then() -> None:
    """Transactions of other tables publish nothing, but the position follows, so that the log may be purged."""
    broker = Broker()
    run(Script(told=[*transaction(1), CaughtUp(), 0.5, *transaction(2), CaughtUp(), 0.6, CaughtUp()]), broker)
    assert commits(broker) == [("", 0), (":1-2", 0)]
    assert [record.topic for record in broker.records] == ["top.schemas"]


def test_an_idle_source_publishes_nothing() -> None:
    """No change, no record, however long it lasts."""
    broker = Broker()
    run(Script(told=[CaughtUp(), 100.0, CaughtUp(), 100.0, CaughtUp()]), broker)
    assert len(broker.checkpoints) == 1


def test_what_came_before_a_refusal_is_published() -> None:
    """Fatal behind whole transactions: they are committed first. Inside one: nothing of it is."""
    broker = Broker()
    told: list[Fact | float | Exception] = [*transaction(1, 10), transaction(2)[0], Fatal("truncated", "snapshot")]
    with pytest.raises(Fatal):
        run(Script(told=told), broker)
    assert commits(broker)[-1] == (":1", 1)
    broker = Broker()
    with pytest.raises(Fatal):
        run(Script(told=[*transaction(1, 10)[:2], Fatal("unreadable", "report it")]), broker)
    assert commits(broker) == [("", 0)]
    assert [record.topic for record in broker.records] == ["top.schemas"]


def test_a_lost_connection_gives_up_what_was_not_committed() -> None:
    """Retriable in the middle of a group: the next session finds the last commit and nothing half."""
    broker = Broker()
    with pytest.raises(Retriable):
        run(Script(told=[*transaction(1, 10), *transaction(2, 11)[:2], Retriable("away")]), broker)
    assert commits(broker) == [("", 0)]
    run(Script(told=[*transaction(1, 10), *transaction(2, 11)]), broker)
    assert commits(broker)[-1] == (":1-2", 2)


def test_a_snapshot_is_committed_in_parts_under_its_first_watermark() -> None:
    """Every part repeats the low watermark, and only the last one says done."""
    broker = Broker()
    pages: list[list[Image]] = [[{"id": 1}, {"id": 2}], [{"id": 3}, {"id": 4}], [{"id": 5}], []]
    run(Script(pages=pages), broker, "initial", Limits(rows=2))
    assert [c.snapshot for c in broker.checkpoints] == ["running", "running", "running", "done"]
    values = [orjson.loads(r.value) for r in broker.records if r.topic == "top.s.d.t" and r.value]
    assert [(v["op"], v["after"]["id"], v["source"]["sequence"]) for v in values] == [("r", i, 0) for i in range(1, 6)]


def test_a_table_altered_while_its_snapshot_begins_is_read_again() -> None:
    """Its rows would lack what the new columns hold."""
    script, broker = Script(pages=[[{"id": 1}]]), Broker()
    schemas = script.schemas
    calls = iter(range(9))

    def later_altered(known: Mapping[TableId, TableSchema]) -> Mapping[TableId, TableSchema]:
        script.altered = next(calls) > 0
        return schemas(known)

    script.schemas = later_altered  # type: ignore[method-assign]  # the second look sees another table
    with pytest.raises(Retriable, match="altered"):
        run(script, broker, "initial")
    assert [c.snapshot for c in broker.checkpoints] == ["running"]


def test_a_table_added_after_the_snapshot_is_refused() -> None:
    """Its older rows would be missing for ever, in silence."""
    broker = Broker()
    run(Script(), broker)
    added = TableId(source="s", database="d", table="added")
    with pytest.raises(Fatal, match="added to the topology"):
        run(Script(tables={SCHEMA.table_id: SCHEMA, added: replace(SCHEMA, table_id=added)}), broker)


def test_a_transaction_that_takes_too_long_is_named() -> None:
    """Kafka would abort it and abort it again: it is refused instead of tried for ever."""
    told: list[Fact | float | Exception] = [*transaction(1, 1)[:2], 900.0, *transaction(1, 2)[1:]]
    with pytest.raises(Fatal, match="800 s"):
        run(Script(told=told), Broker())
