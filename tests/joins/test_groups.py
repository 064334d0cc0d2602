"""Groups, unions and joins with them, in handmade plans: the stored table equals DuckDB's answer for any history of the
sources and any crash of the driver."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import pytest

from cdc.model.schema import TableId, TableSchema
from cdc.model.types import Canonical
from joins.oracle.oracle import Rows
from joins.oracle.sql_oracle import Answer
from joins.query.plan import Plan
from joins.steps.change_detector import change_detector_step
from joins.steps.route import LogReader
from tests.joins import simulation
from tests.joins.evaluator import canonical
from tests.joins.groupplans import group_plans
from tests.joins.joincase import Run
from tests.joins.quick import QuickOracle, database
from tests.joins.topplans import top_plans

SEEDS = range(12)
MORE = range(12, 200)
PLANS = {**group_plans(), **top_plans()}


@dataclass(frozen=True, slots=True)
class Prepared:
    """A `joincase.Prepared` for a handmade plan."""

    plan: Plan
    oracle: QuickOracle
    text: str

    def answer(self, tables: Mapping[TableId, Rows], clock_ms: int = 0) -> Answer:
        """Return DuckDB's answer over whole tables. Its queries have no conditions on the time."""
        names = [output.name for output in self.plan.outputs]
        found = [[_canonical(value) for value in row] for row in self.oracle._asked(self.text, tables).fetchall()]
        rows = [dict(zip(names, row, strict=True)) for row in found]
        return {tuple(row[name] for name in self.plan.sink.row_key): row for row in rows}


def _canonical(value: Any) -> Canonical:
    found: Any = [canonical(member) for member in value] if isinstance(value, list) else canonical(value)
    return found  # type: ignore[no-any-return]


class Named(QuickOracle):
    """Tables under their own names."""

    def __init__(self, schemas: Mapping[TableId, TableSchema]) -> None:
        self._schemas, self._database = schemas, database().cursor()
        self._names = {table: table.table for table in schemas}


@cache
def prepared(name: str) -> Prepared:
    group = PLANS[name]
    return Prepared(group.plan, Named(group.case(0).schemas()), group.answer)


@pytest.mark.parametrize("seeds", [SEEDS, pytest.param(MORE, marks=pytest.mark.matrix)], ids=["some", "more"])
@pytest.mark.parametrize("name", list(PLANS))
def test_groups_are_their_select(name: str, seeds: range) -> None:
    """Random histories through plans of every shape."""
    for seed in seeds:
        case = PLANS[name].case(seed)
        try:
            Run(case, prepared(name), random.Random(seed)).run()
        except (AssertionError, RuntimeError) as error:
            raise AssertionError(f"seed {seed}\n{case.text()}\n{error}") from error


def test_laws_notice_a_differ_that_forgets(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test detects errors: without the last state of each row, a changed order is counted twice."""
    history: list[list[Any]] = [["put", "shop.orders", ORDER], ["quiet"], ["put", "shop.orders", CHANGED]]
    case = replace(group_plans()["kinds"].case(0), history=history)
    Run(case, prepared("kinds"), random.Random(0)).run()
    # exact changes pass no change detector
    monkeypatch.setattr(LogReader, "_is_exact", lambda reader, source, envelope, *, safe: False)
    monkeypatch.setattr(
        simulation, "change_detector_step", lambda _, messages, picks: change_detector_step(None, messages, picks)
    )
    with pytest.raises(AssertionError, match="is not the SELECT"):
        Run(case, prepared("kinds"), random.Random(0)).run()


ORDER = {
    "id": 1, "customer_id": 1, "kind": "n1", "n": 1, "amount": "1.00", "weight": 0.5, "day": None, "seen": None,
    "unused": 1,
}  # fmt: skip
CHANGED = {**ORDER, "n": 2}
