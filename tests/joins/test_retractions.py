"""Groups over joins receive each changed row as it was and as it is (ADR 118): without a stored row, and right where
the join cannot know what a row was."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest

from cdc.model.errors import Fatal
from cdc.model.event import ChangeEvent
from joins.query.plan import KeyedJoin
from joins.runtime.records import Message
from joins.steps import route, state
from joins.steps.state import JoinState
from tests.joins import joincase
from tests.joins.aggrandom import random_aggregate
from tests.joins.joincase import Case, Run, events_of, log_of, prepared, run_case
from tests.joins.simulation import Logged

TOPIC = "law.shop.shop.f"
REASON = "not an envelope: unexpected end of data: line 1 column 2 (char 1)"
_SUMS = "count(*) AS c, sum(f.v) AS s"
_TABLES: dict[str, dict[str, Any]] = {
    "shop.f": {"key": ["id"], "id": "int", "d": "int?", "v": "int"},
    "shop.d": {"key": ["id"], "id": "int", "name": "varchar(9)"},
}


def moves(kind: str = "JOIN") -> Case:
    """Return a group over a join, and a row that moves from one right side to another, twice."""
    return Case(
        tables=_TABLES,
        query=f"SELECT coalesce(d.name, '-') AS name, {_SUMS} FROM shop.f f {kind} shop.d d ON d.id = f.d "
        "GROUP BY coalesce(d.name, '-')",
        row_key=["name"],
        history=[
            *(["put", "shop.d", {"id": i, "name": f"n{i}"}] for i in (1, 2, 3)),
            *(["put", "shop.f", {"id": i, "d": 1, "v": i}] for i in (1, 2)),
            ["put", "shop.f", {"id": 1, "d": 2, "v": 5}],
            ["put", "shop.f", {"id": 1, "d": 3, "v": 6}],
        ],
    )


def poisoned(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Make record `number` of the facts' topic unreadable in all logs that are made from now on."""
    made = log_of

    def log(case: Case, events: list[ChangeEvent], ends: dict[tuple[str, int], int]) -> list[Logged]:
        records = made(case, events, ends)
        bad = [one for one in records if one.topic == TOPIC][number]
        return [replace(one, value=b"{") if one is bad else one for one in records]

    monkeypatch.setattr(joincase, "log_of", log)
    monkeypatch.setattr(Run, "_compacted", lambda _, records: (records, {}))


@pytest.mark.parametrize("seed", range(5))
def test_a_move_that_cannot_be_read_is_counted_once(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run begins again with a change detector, since the join does not know where the row was."""
    case = replace(moves(), dead_letters=[REASON])
    poisoned(monkeypatch, 2)
    one = Run(case, prepared(case), random.Random(seed))
    one.run()
    assert one.exact_from == {TOPIC: 1}


def test_a_row_is_counted_twice_if_a_lost_move_is_not_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test before detects the error that it is about."""
    monkeypatch.setattr(route, "moving", lambda plan, exact_from: frozenset())
    poisoned(monkeypatch, 2)
    case = replace(moves(), dead_letters=[REASON])
    with pytest.raises(AssertionError, match="is not the SELECT"):
        Run(case, prepared(case), random.Random(0)).run()


def test_a_snapshot_without_a_marker_is_not_relied_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Topics of others may contain snapshots that no marker ends. A row may have moved without a record."""
    case, made = moves(), events_of

    def unmarked(case: Case, *, lasting: bool = True) -> Iterator[list[ChangeEvent]]:
        for events in made(case, lasting=lasting):
            yield [
                replace(one, op="r", before=None) if one.source.table_id.table == "f" and one.before else one
                for one in events
            ]

    monkeypatch.setattr(joincase, "events_of", unmarked)
    one = Run(case, prepared(case), random.Random(0))
    one.run()
    assert one.exact_from == {TOPIC: 1}


def run_cases(seeds: range) -> None:
    """Run random queries with groups, five histories each."""
    for seed in seeds:
        run_case(random_aggregate(seed, seed // 5), seed)


def test_laws_notice_a_row_that_is_not_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """The laws detect a join that forgets what a row was."""

    def forgetful(
        join: KeyedJoin, before: JoinState, after: JoinState, newest: Mapping[bytes, Message], *, every: bool
    ) -> Iterator[Message]:
        return right(join, JoinState(), after, newest, every=every)

    right = state._retractions
    monkeypatch.setattr(state, "_retractions", forgetful)
    with pytest.raises((AssertionError, Fatal)):
        run_cases(range(50))
