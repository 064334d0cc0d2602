"""Properties of the join: for any history of the sources, any cut, compaction, order or repetition of the log, and any
crash of the driver, the stored table equals DuckDB's answer to the same SELECT."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from joins.query.plan import KeyedJoin
from joins.runtime.records import PUT, Message
from joins.steps.state import JoinState, lookup_step
from tests.joins import simulation as simulation_module
from tests.joins.alterrandom import random_altered_case
from tests.joins.joincase import Case, read_case, run_case
from tests.joins.joinrandom import random_case, random_view_case
from tests.laws.chunks import most_in_matrix, schedules

CASES = sorted((Path(__file__).parents[1] / "cases" / "joins").glob("*.case"))
QUICK, CHUNK, HISTORIES = 400, 100, 10  # histories of one query each
ALTERED = 100
MATRIX = 4000
VIEWS = 40


@pytest.mark.parametrize("first", most_in_matrix(range(0, QUICK, CHUNK)))
def test_random_join_is_its_select(first: int) -> None:
    """Random schemas, SELECTs and histories; the same in every run."""
    for seed in range(first, first + CHUNK):
        run_case(random_case(seed, seed // HISTORIES), seed)


@pytest.mark.parametrize("first", most_in_matrix(range(0, ALTERED, CHUNK)))
def test_random_join_of_altered_tables_is_its_select(first: int) -> None:
    """Columns are added, dropped, widened and renamed, before the query is compiled and while it runs: 100 cases."""
    for seed in range(first, first + CHUNK):
        run_case(random_altered_case(seed, seed // HISTORIES), seed)


@pytest.mark.matrix
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("first", range(ALTERED, ALTERED + 2000, 200))
def test_many_random_joins_of_altered_tables_are_their_selects(first: int) -> None:
    """It runs 2,000 more."""
    for seed in range(first, first + 200):
        run_case(random_altered_case(seed, seed // HISTORIES), seed)


@pytest.mark.matrix
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("first", range(10_000, 10_000 + MATRIX, 500))
def test_many_random_joins_are_their_selects(first: int) -> None:
    """It runs 4,000 more."""
    for seed in range(first, first + 500):
        run_case(random_case(seed), seed)


@pytest.mark.parametrize("first", most_in_matrix(range(0, VIEWS, 20)))
def test_random_views_under_left_joins_are_their_selects(first: int) -> None:
    """Computed columns of a table of the topology are NULL if a LEFT JOIN finds no row of it, at any depth."""
    for seed in range(first, first + 20):
        run_case(random_view_case(seed), seed)


@pytest.mark.parametrize(("path", "seeds"), schedules(CASES, 25))
def test_what_failed_once(path: Path, seeds: range) -> None:
    """Every join that was once wrong, with many schedules."""
    for seed in seeds:
        run_case(read_case(path), seed)


DEAF = Case(
    tables={
        "shop.facts": {"key": ["id"], "id": "int", "near_id": "int?"},
        "shop.near": {"key": ["id"], "id": "int", "name": "varchar(9)?"},
    },
    query="SELECT f.id, n.name FROM shop.facts f LEFT JOIN shop.near n ON n.id = f.near_id",
    row_key=["id"],
    history=[
        ["put", "shop.facts", {"id": 1, "near_id": 1}],
        ["quiet"],
        ["put", "shop.near", {"id": 1, "name": "n"}],
    ],
)


def test_laws_notice_a_wrong_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test detects errors: with a lookup join that emits only its own batch's rows, the table is not the SELECT."""
    run_case(DEAF, 0)
    right = lookup_step

    def deaf(
        join: KeyedJoin, k: bytes, state: JoinState | None, messages: Iterable[Message], *, retracts: bool
    ) -> tuple[JoinState | None, list[Message]]:
        arrived = list(messages)
        after, reported = right(join, k, state, arrived, retracts=retracts)
        touched = {message.r for message in arrived if message.op == PUT}
        return after, [message for message in reported if message.k[1:] in touched]

    monkeypatch.setattr(simulation_module, "lookup_step", deaf)
    with pytest.raises(AssertionError, match="is not the SELECT"):
        run_case(DEAF, 0)
