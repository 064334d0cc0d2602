"""Properties from commit to row: servers are live while capture and join start, stop, die and are overtaken. At the end
the stored table is DuckDB's answer to the same SELECT over the servers' tables."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.joins.alive import run_alive
from tests.joins.aliverandom import random_life
from tests.joins.joincase import read_case
from tests.laws.chunks import most_in_matrix, schedules

CASES = sorted((Path(__file__).parents[1] / "cases" / "joins" / "alive").glob("*.case"))
QUICK, CHUNK, LIVES = 300, 100, 10  # histories of one query each


@pytest.mark.parametrize("first", most_in_matrix(range(0, QUICK, CHUNK)))
def test_what_the_servers_hold_is_what_is_stored(first: int) -> None:
    """Random histories: starts during traffic, added tables, lost logs, tables swapped and emptied, crashes."""
    for seed in range(first, first + CHUNK):
        run_alive(random_life(seed, seed // LIVES), seed)


@pytest.mark.matrix
@pytest.mark.timeout(2400)
@pytest.mark.parametrize("first", range(100_000, 120_000, 2000))
def test_the_same_of_many_more(first: int) -> None:
    """It runs 20,000 more."""
    for seed in range(first, first + 2000):
        run_alive(random_life(seed, seed // LIVES), seed)


@pytest.mark.parametrize(("path", "seeds"), schedules(CASES, 40))
def test_what_failed_once(path: Path, seeds: range) -> None:
    """Every history after which a table was once wrong, with many schedules."""
    for seed in seeds:
        run_alive(read_case(path), seed)
