"""Joins by time show the SELECT over the rows that arrived in time, for any order, batches and crashes."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from cdc.model.errors import TopologyError
from cdc.stored.cells import load_barrier
from cdc.topology.reader import read_topology
from joins.oracle.sql_oracle import Answer
from joins.query.describe import json_of_plan, text_of_plan
from joins.query.drawing import svg_of_plan
from joins.query.loose_keys import loose_keys
from joins.query.nodes import Interval
from joins.runtime.records import LATE, RefusedRecord
from joins.runtime.sink import Report, Writes, barriers
from joins.select.compiler import compile_plan
from joins.steps.by_time import micros_of
from tests.joins.joincase import Case, comparable
from tests.joins.quick import QuickOracle, database, evaluator, functions
from tests.joins.simulation import Simulation
from tests.joins.timedrandom import FLUSHED, TABLES, TimedCase, judged, logged, random_timed

ROUNDS = 100


def expected_of(timed: TimedCase, watermarks: list[int] | None = None) -> tuple[Answer, int, int]:
    """Return DuckDB's answer over the rows in time, without flush rows; and the numbers of late rows and faults.

    `watermarks` as in `judged`.
    """
    topology = timed.case.topology()
    plan = timed.case.plan()
    root = plan.fragments[0].root
    assert isinstance(root, Interval)
    tables = [node.captured.table_id for node in root.walk()]
    found = judged(timed, frozenset(f"{table.source}.{table.table}" for table in tables), watermarks)
    oracle = QuickOracle(topology, timed.case.schemas(), database(), functions())
    answer = oracle.answer(topology.tables["wide"], tuple(timed.case.row_key), found.tables)
    return shown(answer), found.late, found.faults


def shown(answer: Answer) -> Answer:
    """Return the answer without the rows that only advance the watermark."""
    return {
        key: row for key, row in answer.items() if not any(_flushes(v) for v in key)
        if row.get("n") != FLUSHED
    }  # fmt: skip


def _flushes(value: object) -> bool:
    return (isinstance(value, int) and value >= 10**6) or (
        isinstance(value, str) and value > "2026-04" and "T" in value
    )


def simulated(timed: TimedCase, chance: random.Random) -> Simulation:
    """Run the history through the simulation, in batches that interleave partitions; some batches run repeatedly."""
    simulation = Simulation(timed.case.plan(), {}, evaluator(), shuffle=lambda some: chance.sample(some, len(some)))
    for number, records in enumerate(logged(timed)):
        mixed = sorted(records, key=lambda one: (one.topic, one.partition) if chance.random() < 0.5 else ("", 0))
        for last in (*[False] * chance.choice([0, 0, 1]), True):
            simulation.run_batch(mixed, now_ms=1000 + number, commit=last)
    return simulation


def check_timed(timed: TimedCase, seed: int) -> None:
    """Raise AssertionError, with all that reproduces it, if a history's result differs from DuckDB's."""
    expected, late, faults = expected_of(timed)
    simulation = simulated(timed, random.Random(seed))
    found, wanted = comparable(shown(simulation.live()), expected)
    assert found == wanted, f"seed {seed}\n{timed.case.text()}\n{timed.batches}"
    dead_letters = {(one.topic, one.partition, one.offset): one.reason for one in simulation.refused}
    hides = "WHERE" in timed.case.query or "b.n > 1" in timed.case.query
    reported_late = sum(reason.startswith(LATE) for reason in dead_letters.values())
    assert reported_late <= late if hides else reported_late == late, f"seed {seed}"
    assert sum("append-only" in reason for reason in dead_letters.values()) >= faults, f"seed {seed}"


def test_random_histories() -> None:
    """Out of order, late, repeated, silent, changed: the rows are those of the SELECT without the late ones."""
    for seed in range(ROUNDS):
        check_timed(random_timed(seed), seed)


@pytest.mark.matrix
def test_very_many_random_histories() -> None:
    """The same, four hundred times."""
    for seed in range(1000, 1400):
        check_timed(random_timed(seed), seed)


BETWEEN = "b.user = a.user AND b.at BETWEEN a.at AND a.at + INTERVAL 1 HOUR"
REFUSED = {
    "one bound": (
        "b.user = a.user AND b.at <= a.at + INTERVAL 1 HOUR",
        "a join by time with one bound, which keeps rows forever",
        "AND b.at >= a.at - INTERVAL 10 MINUTE",
    ),
    "the other bound": (
        "b.user = a.user AND b.at >= a.at - INTERVAL 1 HOUR",
        "a join by time with one bound",
        "AND b.at <= a.at + INTERVAL 1 HOUR",
    ),
    "no fixed length": (
        "b.user = a.user AND b.at BETWEEN a.at AND a.at + INTERVAL 1 MONTH",
        "INTERVAL '1' MONTH has no fixed length",
        "INTERVAL 10 MINUTE: a number of SECOND, MINUTE, HOUR, DAY or WEEK",
    ),
    "too long": ("b.user = a.user AND b.at BETWEEN a.at AND a.at + INTERVAL 9999 WEEKS", "is too long", "10 years"),
    "nothing between": (
        "b.user = a.user AND b.at BETWEEN a.at + INTERVAL 1 HOUR AND a.at",
        "no b lies between these times",
        "the earlier bound first",
    ),
    "no column": (
        "b.user = a.user AND b.at > '2026-01-01' + INTERVAL 1 HOUR",
        "string in '2026-01-01' + INTERVAL '1' HOUR",
        "a date or timestamp: CAST(x AS TIMESTAMP) + INTERVAL",
    ),
    "no time": (
        "b.user = a.user AND b.n BETWEEN a.at AND a.at + INTERVAL 1 HOUR",
        "b.n, a int32, as the time of a join",
        "a DATETIME or TIMESTAMP",
    ),
    "two times": (
        "b.user = a.user AND b.at >= a.at - INTERVAL 1 HOUR AND b.seen <= a.at + INTERVAL 1 HOUR",
        "a join by more times than one of each side: a.at, b.at, b.seen",
        "bounds of a and b by one",
    ),
    "asked of both": (
        f"{BETWEEN} AND b.n > a.n",
        "ON b.n > a.n in a LEFT JOIN by time is not supported yet",
        "conditions on b alone that cannot fail",
    ),
    "that can fail": (f"{BETWEEN} AND b.n / b.n > 1", "ON b.n / b.n > 1 in a LEFT JOIN by time", "that cannot fail"),
}


def case_of(on: str, kind: str = "LEFT JOIN", **changed: Any) -> Case:
    tables = {name: {**TABLES[name], "seen": "datetime"} for name in ("shop.views", "web.clicks")}
    query = f"SELECT a.id AS k0, b.id AS k1, b.nr AS k2 FROM shop.views a {kind} web.clicks b ON {on}"
    case = Case(
        tables=tables,
        query=query,
        row_key=["k0", "k1", "k2"],
        history=[],
        watermarks=dict.fromkeys(tables, "10m"),
    )
    return replace(case, **changed)


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name: str) -> None:
    """An unsupported join by time is refused with its position and the nearest form."""
    on, what, expected = REFUSED[name]
    with pytest.raises(TopologyError) as refused:
        case_of(on).plan()
    assert what in refused.value.what
    assert "query line 1, column " in refused.value.what
    assert expected in refused.value.expected


def test_refused_elsewhere() -> None:
    """Tables whose rows may change, earlier joins, FULL, rows of a query, polled sources."""
    with pytest.raises(TopologyError, match=r"a is joined by time, and the rows of shop\.shop\.views may"):
        case_of(BETWEEN, watermarks={"web.clicks": "10m"}).plan()
    with pytest.raises(TopologyError, match="a FULL JOIN by time"):
        case_of(BETWEEN, kind="FULL JOIN").plan()
    front = "SELECT a.id AS k0, b.id AS k1, b.nr AS k2 FROM shop.views a JOIN shop.views x ON x.id = a.n"
    with pytest.raises(TopologyError, match="b is joined by time after another join"):
        case_of(BETWEEN, query=f"{front} JOIN web.clicks b ON {BETWEEN}").plan()
    groups = "(SELECT user, max(at) AS at FROM web.clicks GROUP BY user)"
    query = f"SELECT a.id AS k0 FROM shop.views a JOIN {groups} b ON {BETWEEN}"
    with pytest.raises(TopologyError, match="b, the rows of a query, is joined by time"):
        case_of(BETWEEN, query=query, row_key=["k0"]).plan()
    with pytest.raises(TopologyError, match="append_only in a source whose log may repeat and reorder"):
        case_of(BETWEEN, delivery="at_least_once").plan()


def test_topology_says_both_or_none() -> None:
    """`append_only` and `watermark` belong together."""
    case = case_of(BETWEEN)
    assert [case.topology().lateness(table) for table in case.schemas()] == [600, 600]
    source = (
        "name: t\nsources: {s: {type: mysql, hostname: h, username: u, password: p, database: d, server_id: 1, "
        "tables: {e: RULE}}}\ntables: {w: {query: SELECT id FROM s.e, row_key: [id]}}\n"
    )
    for rule, what in {
        "{append_only: true}": "append_only without a watermark",
        "{watermark: 5m}": "a watermark of a table whose rows may change",
        "{append_only: yes, watermark: 5m}": "'yes'",
    }.items():
        with pytest.raises(TopologyError) as refused:
            read_topology(source.replace("RULE", rule), file="t.yml", environ={})
        assert what in refused.value.what
        assert refused.value.line == 2


def test_explained() -> None:
    """The plan describes what the join waits for, and that a silent table delays it."""
    text = text_of_plan(case_of(BETWEEN).plan())
    assert "LEFT JOIN ON b.user = a.user AND b.at BETWEEN a.at AND a.at + INTERVAL 1 HOUR" in text
    assert "a: append-only, rows up to 10 MINUTE late; later ones, updates and deletes are dead letters" in text
    assert "while one of them is silent, it does not advance" in text
    assert "rows of a without a match are emitted once it has passed their time" in text
    reported = json_of_plan(case_of(BETWEEN).plan())
    assert reported["append_only"] == {"shop.shop.views": 600_000, "web.web.clicks": 600_000}
    assert "pairs of a and b" in svg_of_plan(case_of(BETWEEN).plan())


def test_how_late_rows_may_come_is_no_part_of_the_state() -> None:
    """The watermark may be changed at any start; the bounds may not."""
    plan = case_of(BETWEEN).plan()
    assert case_of(BETWEEN, watermarks=dict.fromkeys(TABLES, "1h")).plan().fingerprint() == plan.fingerprint()
    assert case_of(BETWEEN.replace("1 HOUR", "2 HOUR")).plan().fingerprint() != plan.fingerprint()


def test_keys_that_fold_case_are_reported() -> None:
    """Text in joins by time compares by its bytes, as in every join."""
    case = case_of("b.name = a.name AND b.at BETWEEN a.at AND a.at + INTERVAL 1 HOUR")
    for columns in case.tables.values():
        columns["name"] = "varchar(9)"
    schemas = {
        table: replace(
            schema,
            columns=tuple(
                replace(column, collation="utf8mb4_general_ci") if column.name == "name" else column
                for column in schema.columns
            ),
        )
        for table, schema in case.schemas().items()
    }
    topology = case.topology()
    plan = compile_plan(topology, topology.tables["wide"], schemas)
    assert [str(key.table_id) for key in loose_keys(plan, schemas)] == ["shop.shop.views", "web.web.clicks"]


def test_micros() -> None:
    """Canonical datetimes have microseconds; an impossible date has none."""
    assert micros_of("1970-01-01T00:00:01.5Z") == 1_500_000
    assert micros_of("1969-12-31T23:59:59.999999Z") == -1
    assert micros_of("2026-01-01T00:00:00.123456789Z") == micros_of("2026-01-01T00:00:00.123456Z")
    assert micros_of(None) is None
    assert micros_of("2026-02-30T00:00:00Z") is None


def test_barriers_and_reports_report() -> None:
    """A barrier contains the watermark only for a table that joins by time; a report counts late rows."""
    made = barriers(1, batch=5, timestamp=9, positions={}, watermark=1234)[0]
    assert load_barrier(made.to_bytes()).watermark == 1234
    plain = barriers(1, batch=5, timestamp=9, positions={})[0]
    assert b"watermark" not in plain.to_bytes()
    assert load_barrier(plain.to_bytes()).watermark is None
    reasons = [LATE + "its time is …", "UPDATE of an append-only table: the row stays as it was"]
    report = Report()
    report.add(Writes(refused=[RefusedRecord("t", 0, n, reason, None, None) for n, reason in enumerate(reasons)]))
    assert (report.refused, report.late) == (2, 1)
