"""`verify` of a table whose rows come and go with the time: a row at the border is no difference, a wrong one is."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence

import pytest

from cdc.model.errors import Skippable
from cdc.stored.cells import RowCodec, document_id
from tailorbird.verify.sql_oracle import answer
from tailorbird.verify.table.table_stage import QueryAnswer, Row, Stored, TableComparison, TableStage
from tests.joins.joincase import CLOCK_MS, Case, events_of, log_of
from tests.joins.meaningrandom import read
from tests.joins.quick import evaluator
from tests.joins.simulation import Simulation
from tests.joins.temporalrandom import TABLES

SEEDS = 3
WHERE = "o.created_at BETWEEN now() - INTERVAL 30 SECOND AND now() + INTERVAL 30 SECOND"


class Table:
    """Both ends of a table. Batches run while it is read, and the barrier of a batch comes later than its rows.

    `wrong` are planted rows by key; None: the row is missing."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        history = [["put", "shop.orders", self._row(number)] for number in range(60)]
        tables = {"shop.orders": TABLES["shop.orders"]}
        query = f"SELECT o.id, o.amount FROM shop.orders o WHERE {WHERE}"
        self.case = Case(tables=tables, query=query, row_key=["id"], history=history)
        self.plan = self.case.plan()
        self.simulation = Simulation(self.plan, {}, evaluator())
        self.codec = RowCodec(self.plan.layout(1))
        self.clock, self.batch = CLOCK_MS, 1
        (events,) = events_of(self.case)
        self.simulation.run_batch(log_of(self.case, events, {}), now_ms=self.clock)
        self.barrier = (self.batch, self.simulation.clock)
        self.wrong: dict[str, Row | None] = {}

    def _row(self, number: int) -> Row:
        seconds = self.chance.randint(0, 40)
        day = "2026-01-03T23:59" if seconds < 30 else "2026-01-04T00:00"
        at = f"{day}:{(seconds + 20) % 60:02}.{self.chance.randint(1, 9)}Z"
        return {"id": number, "customer_id": 1, "status": "a", "amount": "1.50", "created_at": at, "day": None}

    def tick(self) -> None:
        """Run a batch; the barrier of the one before it is visible."""
        self.barrier = (self.batch, self.simulation.clock)
        self.clock, self.batch = self.clock + 1000, self.batch + 1
        self.simulation.run_batch([], now_ms=self.clock)

    def ask(self) -> QueryAnswer:
        if self.chance.random() < 0.5:
            self.tick()
        topology, clock = self.case.topology(), self.barrier[1]
        found = answer(topology, topology.tables["wide"], read(self.case), clock)
        return QueryAnswer({self._key(row): row for row in found.rows}, {}, 0, found.unknown, clock)

    def _key(self, row: Row) -> str:
        return document_id(self.codec.row_key(row))

    def _kept(self) -> dict[str, Stored]:
        kept = {self._key(row): Stored(2, row) for row in self.simulation.live().values()}
        kept |= {key: Stored(2, row) for key, row in self.wrong.items() if row is not None}
        return {key: row for key, row in kept.items() if self.wrong.get(key, row) is not None}

    def scan(self) -> Iterator[tuple[str, Stored]]:
        for key in sorted(self._kept()):
            if self.chance.random() < 0.05:
                self.tick()
            if key in (kept := self._kept()):
                yield key, kept[key]

    def rows(self, keys: Sequence[str]) -> Mapping[str, Stored]:
        if self.chance.random() < 0.5:
            self.tick()
        kept = self._kept()
        return {key: kept[key] for key in keys if key in kept}

    def written(self) -> int:
        return self.batch

    def wait(self, positions: Mapping[str, str]) -> int:
        return self.barrier[0]

    def compare(self) -> TableComparison:
        layout = self.plan.layout(1)
        return TableStage(
            table="wide", row_key=layout.row_key, columns=[column.name for column in layout.columns],
            sources=self, kept=self, seconds=lambda: 0.0, pause=lambda _: self.tick(),
        ).compare()  # fmt: skip


def test_rows_at_the_border_are_no_difference() -> None:
    """Rows leave and enter while the table is read, and nothing is reported. The verdict has the clock."""
    for seed in range(SEEDS):
        table = Table(seed)
        before = table.simulation.live()
        verdict, wrong = table.compare()
        assert (verdict.outcome, wrong) == ("equal", ()), f"seed {seed}: {verdict.findings}"
        assert "now() = 2026-01-0" in verdict.cut
        assert table.simulation.live() != before


def test_wrong_rows_are_differences() -> None:
    """A row that stays although its time is over, and one that is missing, are found among rows that move."""
    for seed in range(SEEDS):
        table = Table(seed)
        ghost: Row = {"id": 999, "amount": "1.50"}
        table.wrong[table._key(ghost)] = ghost
        times = {word[2]["id"]: word[2]["created_at"] for word in table.case.history}
        young = max(table.simulation.live().values(), key=lambda row: str(times[row["id"]]))
        table.wrong[table._key(young)] = None
        verdict, wrong = table.compare()
        assert {one.key for one in wrong} == {*table.wrong}, f"seed {seed}: {verdict}"


def test_without_a_clock_nothing_is_compared() -> None:
    """The barrier of an older join has no clock: the result is unknown, not different."""
    table = Table(0)
    topology = table.case.topology()
    with pytest.raises(Skippable, match="its set of rows depends on"):
        answer(topology, topology.tables["wide"], read(table.case))
