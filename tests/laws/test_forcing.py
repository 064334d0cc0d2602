"""Rows re-read by `verify --repair` make the join write every row of its table again, whatever it wrote before."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tailorbird.verify.table.rereads import MOST_KEYS, rereads
from tests.joins.joincase import Case, Run, prepared
from tests.joins.joinrandom import random_case, random_view_case
from tests.joins.simulation import Logged, StoredTable

SEEDS = st.integers(0, 2**32)
MANY: list[dict[str, None]] = [{}] * (MOST_KEYS + 1)  # enough keys that tables are read completely


class Emptied(Run):
    """A run whose table loses all rows without the join's knowledge, before the last part of the history."""

    parts = 0

    def _deliver(self, records: list[Logged]) -> None:
        if self.parts == 0:
            self.simulation.table = StoredTable()
        self.parts -= 1
        super()._deliver(records)


def emptied(case: Case, seed: int) -> bool:
    """Return whether its rows can be forced; AssertionError if they can, and are still missing."""
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
    """Most joins of tables can be forced; of views those that group nothing."""
    assert callable(random_one)
    assert sum(bool(rereads((case := random_one(seed)).plan(), case.schemas(), MANY)) for seed in range(20)) > 3


@given(seed=SEEDS)
@settings(max_examples=20)
def test_a_row_that_is_read_again_is_written_again(seed: int) -> None:
    """Joins of every shape of tables, with any history, batches and crashes: all rows exist again."""
    case = random_case(seed)
    assume(emptied(case, seed))


@given(seed=SEEDS)
@settings(max_examples=20)
def test_so_are_rows_of_views(seed: int) -> None:
    """This holds if no intermediate step emits only changes."""
    case = random_view_case(seed)
    assume(emptied(case, seed))
