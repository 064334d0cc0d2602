"""Properties of queries that group, unite and nest: for any history of the sources, any cut, compaction, order or
repetition of the log, and any crash of the driver, the stored table equals DuckDB's answer."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from cdc.model.errors import Fatal, TopologyError
from joins.runtime.records import Message
from joins.steps.change_detector import Picks, Transition, change_detector_step
from tests.joins import simulation
from tests.joins.aggrandom import random_aggregate
from tests.joins.alive import run_alive
from tests.joins.aliverandom import life_of
from tests.joins.joincase import read_case, run_case
from tests.laws.chunks import most_in_matrix, schedules

CASES = sorted((Path(__file__).parents[1] / "cases" / "joins" / "groups").glob("*.case"))
QUICK, CHUNK, HISTORIES = 200, 25, 5  # histories of one query each
LIVES = 50


@pytest.mark.parametrize("first", most_in_matrix(range(0, QUICK, CHUNK)))
def test_random_groups_are_their_select(first: int) -> None:
    """Random queries of every construct, and histories in which groups appear and vanish; the same in every run."""
    for seed in range(first, first + CHUNK):
        run_case(random_aggregate(seed, seed // HISTORIES), seed)


@pytest.mark.matrix
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("first", range(10_000, 14_000, 500))
def test_many_more_are_their_selects(first: int) -> None:
    """4,000 more queries; a few are refused, since the generator's key cannot be proved."""
    refused = list[str]()
    for seed in range(first, first + 500):
        try:
            run_case(random_aggregate(seed), seed)
        except TopologyError as error:
            refused.append(str(error))
    assert len(refused) < 10
    # the last: a table in FROM hides the key by which rows that are equal in ORDER BY are distinguished
    reasons = ("row_key: no key of the", "joins and groups", "a key that the query cannot name")
    assert all(any(reason in said for reason in reasons) for said in refused), refused


@pytest.mark.parametrize("first", most_in_matrix(range(0, LIVES, CHUNK)))
def test_groups_of_what_the_servers_hold(first: int) -> None:
    """From commit to row, over live servers, as tests/laws/test_alive.py does for joins."""
    for seed in range(first, first + CHUNK):
        run_alive(life_of(random_aggregate(seed // HISTORIES), seed), seed)


@pytest.mark.parametrize(("path", "seeds"), schedules(CASES, 25))
def test_traps(path: Path, seeds: range) -> None:
    """Every history that an incorrect grouping would miscount, with many schedules."""
    for seed in seeds:
        run_case(read_case(path), seed)


def test_laws_notice_a_wrong_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test detects errors: with a step that forgets a row's last state, groups count deleted rows."""

    def forgetful(
        state: bytes | None, messages: Iterable[Message], picks: Picks
    ) -> tuple[bytes | None, Transition | None]:
        return change_detector_step(None, messages, picks)

    monkeypatch.setattr(simulation, "change_detector_step", forgetful)
    with pytest.raises((AssertionError, Fatal)):
        test_random_groups_are_their_select(0)
