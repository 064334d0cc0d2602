"""With thousands of tables, capture works as much per transaction and per statement as with ten."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

import pytest

from cdc.model.naming import history_topic, schemas_topic
from cdc.model.schema import TableId, TableSchema
from cdc.topology.topology import Source
from ingest.capture.groups import Limits
from ingest.capture.observer import Observer
from ingest.capture.session import Session
from ingest.events import published as published_module
from ingest.events import tables as tables_module
from ingest.events.log_events import (
    CAUGHT_UP,
    LogEvent,
    RowsLogged,
    StatementLogged,
    TransactionBegan,
    TransactionEnded,
)
from ingest.log.memory_log import Broker, MemoryLog
from ingest.records.chunk_requests import Chunk
from ingest.records.exact_phases import STATE as EXACT
from ingest.records.exact_phases import ExactPhases
from ingest.records.records import Recorder
from ingest.run_capture import tables_of
from tests.ingest.test_session import UUID, Script
from tests.support.work import Work, measured

FEW, MANY = 10, 1000
# bytes by which a call may add more memory: less than a copy of a dict of all tables, more than the growth of a list
MORE = 25 * MANY
Policy = Literal["accept", "drop"]


@dataclass
class Measured(Script):
    """A source whose snapshots never advance. What the last transaction costs is `work`; those before it warm up."""

    last: list[LogEvent] = field(default_factory=list)
    work: Work = field(default_factory=Work)

    def ready(self) -> list[Chunk]:
        return []

    def __iter__(self) -> Iterator[LogEvent]:
        if self.last:
            yield from self.reported  # type: ignore[misc]  # only events are scripted here
            last, self.last = self.last, []
            with measured() as self.work:
                yield from last
        self.over = True
        yield CAUGHT_UP


@dataclass
class Reading(Measured):
    """The same, but all tables except the last are read before what is measured."""

    def ready(self) -> list[Chunk]:
        self.asked = [one for one in self.asked if one.schema.table_id.table != self.names[-1]]
        return Script.ready(self)


def source_of(names: tuple[str, ...], policy: Policy) -> Source:
    listed = tuple(TableId(source="s", database="d", table=name) for name in names) if policy == "drop" else ()
    return Source(
        name="s", type="mysql", hostname="localhost", port=1, username="u", password="", database="d", tables=listed,
        server_id=1, snapshot_mode="initial", filter_policy=policy,
    )  # fmt: skip


def transaction(number: int, *inside: LogEvent) -> list[LogEvent]:
    return [TransactionBegan(f"{UUID}:{number}", 10**9, 1, "f", number), *inside, TransactionEnded("f", number)]


def row(table: str, number: int = 1) -> RowsLogged:
    return RowsLogged(TableId(source="s", database="d", table=table), "insert", [{"id": number}], True, "f", 4)


def statement(sql: str) -> StatementLogged:
    return StatementLogged("d", sql, 1, 0)


def captured(
    count: int, policy: Policy, warm: list[LogEvent], last: list[LogEvent], *, dumps: bool = True
) -> tuple[Work, Broker]:
    """Run a capture of `count` tables; return the work of its last events and what was committed."""
    names = tuple(f"t{number}" for number in range(count))
    script, broker = Measured(names=names, reported=[*warm], last=last), Broker()
    Session(
        source=script, log=MemoryLog(broker, schemas_topic("top"), history_topic("top")), recorder=Recorder("top"),
        tables=tables_of(source_of(names, policy)), mode="initial" if dumps else "never", clock=lambda: script.now,
        stopped=lambda: script.over, observer=Observer(), limits=Limits(), dumps=dumps,
    ).run()  # fmt: skip
    return script.work, broker


@pytest.mark.parametrize("policy", ["accept", "drop"])
def test_a_transaction_during_the_snapshot_costs_the_same_with_many_tables(policy: Policy) -> None:
    """No transaction copies the state of all snapshots, whether it is committed alone or with others."""
    warm, last = transaction(1, row("t1")), [*transaction(2, row("t1")), *transaction(3, row("t1")), CAUGHT_UP]
    few, _ = captured(FEW, policy, warm, last)
    many, broker = captured(MANY, policy, warm, last)
    assert broker.checkpoints[-1].position.sequence == 3
    assert len(broker.checkpoints[-1].state["snapshots"]) == MANY
    assert many.lines <= 1.4 * few.lines  # a map of more entries is deeper by two nodes, or three for some hashes
    assert many.bytes <= few.bytes + MORE


def read(count: int, changes: int) -> tuple[Work, Broker]:
    """Run a capture that reads all tables but one; return the work of its last events and what was committed."""
    names, broker = tuple(f"t{number}" for number in range(count)), Broker()
    turns: list[list[LogEvent]] = [[CAUGHT_UP] * 3, [CAUGHT_UP] * 3]
    turns += [[*transaction(number, row("t1", number)), CAUGHT_UP] for number in range(1, changes + 1)]
    *warm, last = turns
    script = Reading(names=names, reported=[event for one in warm for event in one], last=last)
    Session(
        source=script, log=MemoryLog(broker, schemas_topic("top"), history_topic("top")),
        recorder=Recorder("top", phases=ExactPhases(lambda table: "")), tables=tables_of(source_of(names, "drop")),
        mode="initial", clock=lambda: script.now, stopped=lambda: script.over, observer=Observer(), parallel=count,
    ).run()  # fmt: skip
    return script.work, broker


@pytest.mark.parametrize("changes", [0, 2])
def test_tables_that_are_read_cost_nothing_afterwards(changes: int) -> None:
    """An exact phase of each begins with the next change of the source. Until then nothing is committed for them."""
    few, few_broker = read(FEW, changes)
    many, broker = read(MANY, changes)
    state = broker.checkpoints[-1].state
    assert (len(state["snapshots"]), len(state.get(EXACT, ()))) == (1, MANY - 1 if changes else 0)
    assert len(broker.checkpoints) == len(few_broker.checkpoints)
    assert many.lines <= 1.5 * few.lines  # several maps of more entries are deeper
    assert many.bytes <= few.bytes + MORE


@pytest.mark.parametrize("policy", ["accept", "drop"])
@pytest.mark.parametrize("sql", ["ALTER TABLE t7 ADD COLUMN a INT", "GRANT SELECT ON d.* TO u", "FLUSH PRIVILEGES"])
def test_a_statement_costs_the_same_with_many_tables(sql: str, policy: Policy, monkeypatch: pytest.MonkeyPatch) -> None:
    """It derives the schema of the table that it changes, and looks at no other one."""
    derived: list[TableId] = []
    derive = published_module.published

    def counted(schema: TableSchema, *rest: object) -> TableSchema:
        derived.append(schema.table_id)
        return derive(schema, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(tables_module, "published", counted)
    found = []
    for count in (FEW, MANY):
        warm = [*transaction(1, statement("ALTER TABLE t8 ADD COLUMN a INT")), CAUGHT_UP]
        last = [*transaction(2, statement(sql)), *transaction(3, row("t7")), CAUGHT_UP]
        derived.clear()
        work, broker = captured(count, policy, warm, last, dumps=False)
        found.append((work, len(derived) - count, broker))
    (few, few_derived, _), (many, many_derived, broker) = found
    assert many_derived == few_derived
    assert many.lines <= 1.25 * few.lines
    assert many.bytes <= few.bytes + MORE
    altered = [one for one in broker.records if one.topic == schemas_topic("top") and one.key == b"s.d.t7"]
    assert len(altered) == (2 if sql.startswith("ALTER") else 1)


def test_whether_a_table_is_captured_is_one_look_up() -> None:
    """A source that lists thousands of tables is asked for each of them."""
    works = []
    for count in (FEW, MANY):
        source = source_of(tuple(f"t{number}" for number in range(count)), "drop")
        table = TableId(source="s", database="d", table=f"t{count - 1}")
        with measured() as work:
            assert source.captures(table)
            assert source.databases == {"d"}
        works.append(work)
    assert works[1].lines == works[0].lines
    assert works[1].bytes <= works[0].bytes + 1000
