"""Joins by time show the SELECT over the rows that came in time, whatever order, batches and deaths do."""

from __future__ import annotations

import random

import pytest

from joins.query.nodes import Interval
from joins.steps.by_time import LATE
from joins.truth.simulation import Simulation
from joins.truth.sql_oracle import Answer
from tests.joins.joincase import comparable
from tests.joins.quick import QuickOracle, database, evaluator
from tests.joins.timedrandom import FLUSHED, TimedCase, judged, logged, random_timed

ROUNDS = 100


def expected_of(timed: TimedCase, watermarks: list[int] | None = None) -> tuple[Answer, int, int]:
    """DuckDB's answer over the rows that came in time, without what only flushes; late rows and faults.

    `watermarks` as in `judged`.
    """
    topology = timed.case.topology()
    plan = timed.case.plan()
    root = plan.fragments[0].root
    assert isinstance(root, Interval)
    tables = [node.captured.table_id for node in root.walk()]
    found = judged(timed, frozenset(f"{table.source}.{table.table}" for table in tables), watermarks)
    oracle = QuickOracle(topology, timed.case.schemas(), database())
    answer = oracle.answer(topology.tables["wide"], tuple(timed.case.row_key), found.tables)
    return shown(answer), found.late, found.faults


def shown(answer: Answer) -> Answer:
    """Without the rows that only move the watermark."""
    return {
        key: row for key, row in answer.items() if not any(_flushes(v) for v in key)
        if row.get("n") != FLUSHED
    }  # fmt: skip


def _flushes(value: object) -> bool:
    return (isinstance(value, int) and value >= 10**6) or (
        isinstance(value, str) and value > "2026-04" and "T" in value
    )


def simulated(timed: TimedCase, chance: random.Random) -> Simulation:
    """The history through the simulation, batches in any order of their partitions, some more than once."""
    simulation = Simulation(timed.case.plan(), {}, evaluator(), shuffle=lambda some: chance.sample(some, len(some)))
    for number, records in enumerate(logged(timed)):
        mixed = sorted(records, key=lambda one: (one.topic, one.partition) if chance.random() < 0.5 else ("", 0))
        for last in (*[False] * chance.choice([0, 0, 1]), True):
            simulation.run_batch(mixed, now_ms=1000 + number, commit=last)
    return simulation


def check_timed(timed: TimedCase, seed: int) -> None:
    """AssertionError, with all that is needed to see it again, where a history does not end as DuckDB says."""
    expected, late, faults = expected_of(timed)
    simulation = simulated(timed, random.Random(seed))
    found, wanted = comparable(shown(simulation.live()), expected)
    assert found == wanted, f"seed {seed}\n{timed.case.text()}\n{timed.batches}"
    letters = {(one.topic, one.partition, one.offset): one.reason for one in simulation.refused}
    hides = "WHERE" in timed.case.query or "b.n > 1" in timed.case.query
    told_late = sum(reason.startswith(LATE) for reason in letters.values())
    assert told_late <= late if hides else told_late == late, f"seed {seed}"
    assert sum("append-only" in reason for reason in letters.values()) >= faults, f"seed {seed}"


def test_random_histories() -> None:
    """Out of order, late, again, silent, changed: the rows are those of the SELECT without what came too late."""
    for seed in range(ROUNDS):
        check_timed(random_timed(seed), seed)


@pytest.mark.long
def test_very_many_random_histories() -> None:
    """The same, two thousand times."""
    for seed in range(1000, 3000):
        check_timed(random_timed(seed), seed)
