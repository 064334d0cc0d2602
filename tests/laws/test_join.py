"""Laws of the join: whatever happened to the sources, however the log was cut into batches, whenever the driver died,
the stored table equals the SELECT over the sources' tables."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import duckdb
import pytest
import sqlglot
from hypothesis import given, settings
from hypothesis import strategies as st

from cdc.envelope import to_envelope
from cdc.event import ChangeEvent, Op, Row, SourceInfo
from cdc.naming import change_topic
from cdc.reader import read_topology
from cdc.schema import Column, TableId, TableSchema
from cdc.types import Canonical
from joins import simulation as simulation_module
from joins.oracle import answer, tables_after
from joins.plan import Plan, compile_plan
from joins.records import DimensionSeen, Pointed
from joins.route import Settled
from joins.simulation import Logged, Simulation
from joins.state import HopState

FACT = TableId(source="shop", database="shop", table="facts")
NEAR = TableId(source="shop", database="shop", table="near")
FAR = TableId(source="crm", database="crm", table="far")
COLUMNS: dict[TableId, dict[str, str]] = {
    FACT: {"id": "int", "near_id": "bigint", "far_id": "int", "size": "decimal(6,2)", "unused": "int"},
    NEAR: {"id": "int", "name": "varchar(9)", "unused": "int"},
    FAR: {"id": "int", "name": "varchar(9)", "unused": "int"},
}
SCHEMAS = {
    table: TableSchema(
        table_id=table,
        version=1,
        columns=tuple(
            Column(name=name, column_type=type_, nullable=name not in ("id", "size")) for name, type_ in columns.items()
        ),
        primary_key=("id",),
    )
    for table, columns in COLUMNS.items()
}
KEYS = dict.fromkeys(COLUMNS, ("id",))
QUERIES = {
    "alone": ("SELECT f.id, f.size FROM shop.facts f", "[id]"),
    "star": (
        "SELECT f.id, f.near_id, n.name AS near, r.name AS far FROM shop.facts f"
        " LEFT JOIN shop.near n ON n.id = f.near_id LEFT JOIN crm.far r ON f.far_id = r.id",
        "[id]",
    ),
    "one table twice": (
        "SELECT f.id, a.name AS one, b.name AS two FROM shop.facts f"
        " LEFT JOIN crm.far a ON a.id = f.near_id LEFT JOIN crm.far b ON b.id = f.far_id",
        "[id]",
    ),
    "itself": (
        "SELECT f.id, f.far_id, g.size AS parent, g.far_id AS grandparent FROM shop.facts f"
        " LEFT JOIN shop.facts g ON g.id = f.far_id",
        "[id]",
    ),
    "wide key": (
        "SELECT f.size, f.id, n.name AS near FROM shop.facts f LEFT JOIN shop.near n ON n.id = f.near_id",
        "[size, id]",
    ),
}


def plan_of(name: str) -> Plan:
    query, row_key = QUERIES[name]
    text = f"""
name: law
sources:
  shop: {{type: mysql, hostname: h, username: u, password: p, database: shop, tables: [facts, near], server_id: 1}}
  crm: {{type: mysql, hostname: h, username: u, password: p, database: crm, tables: [far], server_id: 2}}
tables:
  wide:
    query: {query}
    row_key: {row_key}
"""
    topology = read_topology(text, file="law.yml", environ={})
    return compile_plan(topology, topology.tables["wide"], SCHEMAS)


PLANS = {name: plan_of(name) for name in QUERIES}


@dataclass(frozen=True)
class Step:
    """One wish of a history: make row `id` of `table` so, or remove it; impossible wishes become possible ones."""

    table: TableId
    id: int
    remove: bool
    numbers: tuple[int | None, int | None, int]


ids = st.integers(1, 4)
steps = st.builds(
    Step,
    table=st.sampled_from([FACT, FACT, NEAR, FAR]),
    id=ids,
    remove=st.integers(0, 3).map(lambda n: n == 0),
    numbers=st.tuples(ids | st.none(), ids | st.none(), st.integers(0, 2)),
)
histories = st.lists(steps, min_size=1, max_size=40)


def row_of(step: Step) -> dict[str, Canonical]:
    one, two, three = step.numbers
    if step.table == FACT:
        return {"id": step.id, "near_id": one, "far_id": two, "size": f"{three}.00", "unused": three}
    return {"id": step.id, "name": None if one is None else f"n{one}", "unused": three}


def events_of(history: list[Step]) -> Iterator[ChangeEvent]:
    """The changes that a source would log, in order; sequences count per source."""
    tables: dict[TableId, dict[int, Row]] = {table: {} for table in COLUMNS}
    sequences = {"shop": 0, "crm": 0}
    for number, step in enumerate(history):
        rows = tables[step.table]
        before = rows.get(step.id)
        if step.remove and before is None:
            continue
        after = None if step.remove else row_of(step)
        op: Op = "d" if after is None else "c" if before is None else "u"
        sequences[step.table.source] += 1
        yield ChangeEvent(
            op=op,
            before=before,
            after=after,
            source=SourceInfo(
                table_id=step.table,
                ts_ms=1000 + number,
                server_id=1,
                gtid=None,
                file="f",
                pos=number,
                row=0,
                sequence=sequences[step.table.source],
            ),
            ts_ms=1000 + number,
        )
        if after is None:
            del rows[step.id]
        else:
            rows[step.id] = after


def log_of(events: list[ChangeEvent]) -> list[tuple[Logged, ChangeEvent | None]]:
    """The topics' records, each with its event; a tombstone, which has none, follows each delete."""
    ends: dict[tuple[str, int], int] = {}
    records: list[tuple[Logged, ChangeEvent | None]] = []
    for event in events:
        topic = change_topic("law", event.source.table_id)
        row = event.after if event.after is not None else event.before
        assert row is not None
        key = json.dumps({"id": row["id"]}).encode()
        partition = int(str(row["id"])) % 2
        values: list[bytes | None] = [json.dumps(to_envelope(event, "law")).encode()]
        if event.op == "d":
            values.append(None)
        for value in values:
            offset = ends.get((topic, partition), 0)
            ends[topic, partition] = offset + 1
            logged = Logged(topic=topic, partition=partition, offset=offset, key=key, value=value)
            records.append((logged, event if value is not None else None))
    return records


def queues_of(
    log: list[tuple[Logged, ChangeEvent | None]],
) -> dict[tuple[str, int], list[tuple[Logged, ChangeEvent | None]]]:
    queues: dict[tuple[str, int], list[tuple[Logged, ChangeEvent | None]]] = {}
    for entry in log:
        queues.setdefault((entry[0].topic, entry[0].partition), []).append(entry)
    return queues


def by_source(events: list[ChangeEvent]) -> list[ChangeEvent]:
    return sorted(events, key=lambda event: (event.source.table_id.source, event.source.sequence))


@pytest.mark.parametrize("name", QUERIES)
@given(history=histories, seed=st.integers(0, 2**32), settled=st.booleans())
@settings(max_examples=120, deadline=None)
def test_table_is_the_select_at_every_cut(name: str, history: list[Step], seed: int, settled: bool) -> None:
    """After every batch the table is the SELECT over exactly what the batches have consumed: partitions progress
    unevenly, records of different partitions arrive in any order, and a batch may run several times before it is
    committed."""
    plan, chance = PLANS[name], random.Random(seed)
    log = log_of(list(events_of(history)))
    queues = {at: queue for at, queue in queues_of(log).items() if at[0] in plan.topics}
    noted: Settled = {} if settled else {topic: {0: 0, 1: 0} for topic in plan.topics}
    simulation, now, consumed = Simulation(plan, noted), 1_000_000, list[ChangeEvent]()
    while queues:
        taken: list[list[tuple[Logged, ChangeEvent | None]]] = []
        for at in list(queues):
            count = chance.randint(0, len(queues[at]))
            taken.append(queues[at][:count])
            queues[at] = queues[at][count:]
            if not queues[at]:
                del queues[at]
        consumed += [event for queue in taken for _, event in queue if event is not None]
        for last in (*[False] * chance.randint(0, 2), True):
            now += chance.randint(-5, 5)
            simulation.run_batch(_interleaved(taken, chance), now_ms=now, commit=last)
        assert simulation.live() == answer(plan, tables_after(by_source(consumed), KEYS))
    assert simulation.refused == []


def _interleaved(queues: list[list[tuple[Logged, ChangeEvent | None]]], chance: random.Random) -> list[Logged]:
    waiting = [[logged for logged, _ in queue] for queue in queues if queue]
    result = []
    while waiting:
        queue = chance.choice(waiting)
        result.append(queue.pop(0))
        waiting = [queue for queue in waiting if queue]
    return result


@pytest.mark.parametrize("name", QUERIES)
@given(history=histories, seed=st.integers(0, 2**32))
@settings(max_examples=60, deadline=None)
def test_compaction_before_the_start_changes_nothing(name: str, history: list[Step], seed: int) -> None:
    """A query that starts on a compacted log ends right: an update that changed no used column may be all that is left
    of a row, so nothing below the ends noted at the start may be dropped for that reason."""
    plan, chance = PLANS[name], random.Random(seed)
    events = list(events_of(history))
    kept: list[Logged] = []
    noted: dict[str, dict[int, int]] = {}
    for (topic, partition), queue in queues_of(log_of(events)).items():
        if topic not in plan.topics:
            continue
        settled = chance.randint(0, len(queue))
        noted.setdefault(topic, {})[partition] = settled
        cleaned = chance.randint(0, settled)  # the cleaner works from a partition's beginning up to some offset
        newest = {logged.key: logged.offset for logged, _ in queue[:cleaned]}
        kept += [logged for logged, _ in queue if logged.offset >= cleaned or newest[logged.key] == logged.offset]
    simulation = Simulation(plan, noted)
    half = len(kept) // 2
    for batch in (kept[:half], kept[half:]):
        simulation.run_batch(batch, now_ms=1_000_000)
    assert simulation.live() == answer(plan, tables_after(by_source(events), KEYS))


@pytest.mark.parametrize("name", QUERIES)
@given(history=histories)
@settings(max_examples=25, deadline=None)
def test_oracle_agrees_with_duckdb(name: str, history: list[Step]) -> None:
    """The naive oracle is no private opinion: DuckDB gives the same rows for the topology's own SELECT."""
    tables = tables_after(list(events_of(history)), KEYS)
    query, _ = QUERIES[name]
    with duckdb.connect() as database:
        for table, rows in tables.items():
            database.execute(f"CREATE SCHEMA IF NOT EXISTS {table.source}")
            columns = ", ".join(f"{column} {type_}" for column, type_ in COLUMNS[table].items())
            database.execute(f"CREATE TABLE {table.source}.{table.table} ({columns})")
            for row in rows.values():
                marks = ", ".join("?" for _ in row)
                database.execute(f"INSERT INTO {table.source}.{table.table} VALUES ({marks})", list(row.values()))
        cursor = database.execute(sqlglot.transpile(query, read="spark", write="duckdb")[0])
        names = [column[0] for column in cursor.description]
        found = [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
    expected = list(answer(PLANS[name], tables).values())
    assert sorted(map(_text, found)) == sorted(map(_text, expected))


def _text(row: Mapping[str, object]) -> str:
    return str(sorted((name, str(value)) for name, value in row.items()))


def test_laws_notice_a_wrong_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """The laws bite: with a hop planted here that tells only the rows of its own batch, the table is not the SELECT."""
    history = [Step(FACT, 1, False, (1, None, 0)), Step(NEAR, 1, False, (1, None, 0))]

    def table_after_each() -> bool:
        simulation = Simulation(PLANS["star"], {})
        for logged, _ in log_of(list(events_of(history))):
            simulation.run_batch([logged], now_ms=1_000_000)
        return simulation.live() == answer(PLANS["star"], tables_after(list(events_of(history)), KEYS))

    assert table_after_each()
    right = simulation_module.hop_step

    def deaf(state: HopState | None, records: list[Pointed | DimensionSeen], hop: int, key: str) -> object:
        after, parts = right(state, records, hop, key)
        touched = {record.row for record in records if isinstance(record, Pointed)}
        return after, [part for part in parts if part.row in touched]

    monkeypatch.setattr(simulation_module, "hop_step", deaf)
    assert not table_after_each()
