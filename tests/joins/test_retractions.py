"""Groups over joins receive each changed row as it was and as it is (ADR 118): without a stored row, and right where
the join cannot know what a row was."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest

from cdc.model.errors import Fatal
from cdc.model.event import ChangeEvent
from joins.query.plan import KeyedJoin
from joins.runtime.records import Message
from joins.select.compiler import compile_plan
from joins.steps import route, state
from joins.steps.route import retracts
from joins.steps.state import JoinState
from tests.joins import joincase
from tests.joins.aggrandom import random_aggregate
from tests.joins.alive import World
from tests.joins.aliverandom import life_of
from tests.joins.joincase import Case, Run, events_of, log_of, prepared, run_case
from tests.joins.simulation import Logged

TOPIC = "law.shop.shop.f"
REASON = "not an envelope: unexpected end of data: line 1 column 2 (char 1)"
Alter = Callable[[Logged], Logged]
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


def altered(monkeypatch: pytest.MonkeyPatch, number: int, alter: Alter) -> None:
    """Alter record `number` of the facts' topic in all logs that are made from now on."""
    made = log_of

    def log(case: Case, events: list[ChangeEvent], ends: dict[tuple[str, int], int]) -> list[Logged]:
        records = made(case, events, ends)
        facts = [one for one in records if one.topic == TOPIC]
        return [alter(one) if one in facts[number : number + 1] else one for one in records]

    monkeypatch.setattr(joincase, "log_of", log)
    monkeypatch.setattr(Run, "_compacted", lambda _, records: (records, {}))


def unreadable(record: Logged) -> Logged:
    """Return the record with a value that is no envelope."""
    return replace(record, value=b"{")


def shorter(record: Logged) -> Logged:
    """Return the record without its foreign key, which was dropped."""
    value = json.loads(record.value or b"")
    for image in ("before", "after"):
        del value[image]["d"]
    return replace(record, value=json.dumps(value).encode())


def rewound(record: Logged) -> Logged:
    """Return the record as capture publishes it after a rewind: of a time before the row moved without a record."""
    value = json.loads(record.value or b"")
    value["before"]["d"] = value["after"]["d"] = None
    value["source"]["inexact_after"] = 1000
    return replace(record, value=json.dumps(value).encode())


WITHOUT_PLACE = [
    pytest.param(2, unreadable, [REASON], id="unreadable"),  # the row's first move
    pytest.param(4, shorter, [], id="shorter"),  # a change of the row that does not move it
    pytest.param(4, rewound, [], id="rewound"),
]


def altered_moves(alter: Alter, dead_letters: list[str]) -> Case:
    """Return `moves` with two more changes of the row: one that does not move it, and one that does."""
    case = moves("LEFT JOIN")
    more = [["put", "shop.f", {"id": 1, "d": d, "v": v}] for d, v in ((3, 7), (2, 8))]
    begins = [["quiet"]] if alter is shorter else []  # its records are newer than the plan
    return replace(case, history=[*begins, *case.history, *more], dead_letters=dead_letters)


@pytest.mark.parametrize(("number", "alter", "dead_letters"), WITHOUT_PLACE)
@pytest.mark.parametrize("seed", range(5))
def test_a_move_that_cannot_be_read_is_counted_once(
    seed: int, number: int, alter: Alter, dead_letters: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run begins again with a change detector, since the join does not know where the row was."""
    altered(monkeypatch, number, alter)
    case = altered_moves(alter, dead_letters)
    one = Run(case, prepared(case), random.Random(seed))
    one.run()
    assert one.exact_from == {TOPIC: 1}
    assert one.simulation.states.rows, "a change detector stores the rows"


@pytest.mark.parametrize(("number", "alter", "dead_letters"), WITHOUT_PLACE)
def test_a_row_is_counted_twice_if_a_lost_move_is_not_noticed(
    number: int, alter: Alter, dead_letters: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test before detects the error that it is about."""
    monkeypatch.setattr(route, "moving", lambda plan, exact_from: {})
    altered(monkeypatch, number, alter)
    case = altered_moves(alter, dead_letters)
    with pytest.raises(AssertionError, match="is not the SELECT"):
        Run(case, prepared(case), random.Random(0)).run()


@pytest.mark.parametrize("seed", range(5))
def test_a_topic_of_others_needs_a_change_detector(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A copied topic may contain a snapshot that no marker ends. Its records are inserts, also of rows that moved."""
    case, made = moves(), events_of

    def unmarked(case: Case, *, lasting: bool = True) -> Iterator[list[ChangeEvent]]:
        for events in made(case, lasting=lasting):
            yield [
                replace(one, op="c", before=None) if one.source.table_id.table == "f" and one.before else one
                for one in events
            ]

    monkeypatch.setattr(joincase, "events_of", unmarked)
    known, topology = prepared(case), case.topology()
    others = replace(topology, sources={name: replace(one, type="kafka") for name, one in topology.sources.items()})
    plan = compile_plan(others, others.tables["wide"], case.schemas())
    one = Run(case, replace(known, topology=others, plan=plan), random.Random(seed))
    one.run()
    assert one.exact_from == {}
    assert one.simulation.states.rows, "a change detector stores the rows"
    if seed == 0:  # as if it were a topic of capture
        with pytest.raises(AssertionError, match="is not the SELECT"):
            Run(case, known, random.Random(seed)).run()


@pytest.mark.parametrize("kind", ["JOIN", "LEFT JOIN"])
@pytest.mark.parametrize("seed", range(5))
def test_rows_that_capture_reads_again_need_no_change_detector(kind: str, seed: int) -> None:
    """The rows of a snapshot are not partial, and some moved without a record. A marker removes them from their old
    keys, so the join continues without change detectors, and has the right result after the marker."""
    case = moves(kind)
    again = ["snapshot", "shop.f", [{"id": 2}], [{"id": 1, "d": None, "v": 6}, {"id": 3, "d": 1, "v": 7}]]
    more = ["put", "shop.f", {"id": 3, "d": 2, "v": 8}]
    case = replace(case, history=[again, ["quiet"], *case.history, ["quiet"], again, ["quiet"], more, again])
    one = Run(case, prepared(case), random.Random(seed))
    one.run()
    assert one.exact_from == {}
    assert all(retracts(fragment, one.exact_from) for fragment in one.plan.fragments if fragment.group)
    assert not one.simulation.states.rows, "a change detector has stored rows"


def lives(seeds: range, *, rewinds: bool) -> Iterator[tuple[World, set[str]]]:
    """Run random lives of servers, their captures, and a join with a group after it. Yield each with the tables of
    which it must read every record."""
    for seed in seeds:
        kinds = ("truncate", "snapshot", "swap", "cascades") if rewinds else None
        case = life_of(random_aggregate(seed // 5), seed, kinds)
        if rewinds:
            chance, history = random.Random(seed), list(case.history)
            sources = sorted({name.partition(".")[0] for name in case.tables})
            for source in chance.choices(sources, k=4):
                history.insert(chance.randint(history.index(["start"]) + 1, len(history)), ["rewind", source])
            case = replace(case, history=history)
        world = World(case, seed)
        adding_up = {one.root.source.name for one in world.plan.fragments if one.adds_up}  # type: ignore[union-attr]
        if names := set(route.moving(world.plan, {})) - adding_up:
            try:
                world.run()
            except Exception as error:
                raise AssertionError(f"seed {seed}\n{case.text()}\n{error}") from error
            yield world, names


def test_captures_never_end_the_joins_of_their_tables() -> None:
    """Whatever a real capture publishes, such as repeated snapshots, repairs and lost logs: a group after a join is
    right without a change detector."""
    found = list(lives(range(100), rewinds=False))
    assert len(found) >= 10
    assert all(world.runs is not None and not names & world.runs.exact_from.keys() for world, names in found)


def test_a_rewind_ends_the_joins_of_its_tables() -> None:
    """After a rewind, the group after a join is right, with a change detector."""
    found = list(lives(range(100), rewinds=True))
    assert any(world.runs is not None and names & world.runs.exact_from.keys() for world, names in found)


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
