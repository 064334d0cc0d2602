"""What `verify --repair` has read again makes the join write every row of its table anew, whatever it wrote before."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from joins.oracle.simulation import Logged, StoredTable
from tailorbird.verify.table.rereads import MOST_KEYS, rereads
from tests.joins.joincase import Case, Run, prepared
from tests.joins.joinrandom import random_case, random_view_case

SEEDS = st.integers(0, 2**32)
MANY: list[dict[str, None]] = [{}] * (MOST_KEYS + 1)  # so that tables are read whole


class Emptied(Run):
    """Its table loses all rows behind the join's back, before the last part of the history."""

    parts = 0

    def _deliver(self, records: list[Logged]) -> None:
        if self.parts == 0:
            self.simulation.table = StoredTable()
        self.parts -= 1
        super()._deliver(records)


def emptied(case: Case, seed: int) -> bool:
    """Whether its rows can be forced; AssertionError where they can, and are not there again."""
    plan = case.plan()
    found = rereads(plan, case.schemas(), MANY)
    tables = [f"{one.table.source}.{one.table.table}" for one in found]
    again: list[list[Any]] = [["quiet"], *(["snapshot", table, []] for table in tables)]
    case = replace(case, history=[*case.history, *again])
    run = Emptied(case, prepared(case), random.Random(seed))
    run.parts = sum(word[0] in ("quiet", "start") for word in case.history)
    if found:
        run.run()
    return bool(found)


@pytest.mark.parametrize("random_one", [random_case, random_view_case])
def test_some_are_forced(random_one: object) -> None:
    """Most joins of tables; of views those that group nothing."""
    assert callable(random_one)
    assert sum(bool(rereads((case := random_one(seed)).plan(), case.schemas(), MANY)) for seed in range(20)) > 3


@given(seed=SEEDS)
@settings(max_examples=20)
def test_a_row_that_is_read_again_is_written_again(seed: int) -> None:
    """Joins of every shape of tables, under any history, batches and deaths: all rows are there again."""
    case = random_case(seed)
    assume(emptied(case, seed))


@given(seed=SEEDS)
@settings(max_examples=20)
def test_so_are_rows_of_views(seed: int) -> None:
    """Where nothing in between tells only what changed."""
    case = random_view_case(seed)
    assume(emptied(case, seed))
