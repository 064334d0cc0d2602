"""Properties of many-to-many joins: for any history of the sources, the stored table equals DuckDB's answer to the same
SELECT, and no pair is emitted twice."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

import pytest

from cdc.model.errors import Fatal
from joins.query.nodes import Derived, Node, Pair
from joins.query.value_types import INT64
from joins.runtime.records import DIM_GONE, DIM_PUT, Message, text_of, values_text
from joins.steps.pairs import PairState, Side, pairs_step, reported
from tests.joins import simulation as simulation_module
from tests.joins.joincase import Case, run_case
from tests.joins.pairrandom import random_pair_case
from tests.laws.chunks import most_in_matrix

QUICK, CHUNK, HISTORIES = 150, 50, 10  # histories of one query each
MATRIX = 4000


@pytest.mark.parametrize("first", most_in_matrix(range(0, QUICK, CHUNK)))
def test_random_pairs_are_their_select(first: int) -> None:
    """Inner, LEFT, RIGHT and FULL joins of many to many, among lookups and groups; the same 150 in every run."""
    for seed in range(first, first + CHUNK):
        run_case(random_pair_case(seed, seed // HISTORIES), seed)


@pytest.mark.matrix
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("first", range(10_000, 10_000 + MATRIX, 500))
def test_many_random_pairs_are_their_selects(first: int) -> None:
    """It runs 4,000 more."""
    for seed in range(first, first + 500):
        run_case(random_pair_case(seed), seed)


LONELY = Case(
    tables={name: {"key": ["id"], "id": "int", "at": "int?"} for name in ("shop.a", "shop.b")},
    query="SELECT a.id, b.id AS other FROM shop.a a LEFT JOIN shop.b b ON b.at = a.at",
    row_key=["id", "other"],
    history=[
        ["put", "shop.a", {"id": 1, "at": 7}],
        ["quiet"],
        ["put", "shop.b", {"id": 2, "at": 7}],
        ["quiet"],
        ["delete", "shop.b", {"id": 2}],
    ],
)


def test_laws_notice_a_step_that_forgets_who_is_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test detects errors: if a step keeps an unmatched row after its partner arrives, the table is wrong."""
    run_case(LONELY, 0)
    right = pairs_step

    def forgetful(pair: Pair, *arguments: Any) -> tuple[PairState | None, Iterable[Message]]:
        state, found = right(pair, *arguments)
        return state, (one for one in found if one.p or not one.k.endswith(b",null"))

    monkeypatch.setattr(simulation_module, "pairs_step", forgetful)
    with pytest.raises(AssertionError, match="is not the SELECT"):
        run_case(LONELY, 0)


def _node(name: str, change_detector: int) -> Node:
    """Return rows of an id, a key and a value."""
    return Node(
        alias=name, source=Derived(fragments=(0,), change_detector=change_detector), columns=("id", "at", "value"),
        types=(INT64,) * 3,
        id_columns=(0,), filter=None, lookups=(),
    )  # fmt: skip


def _pair(left_stays: bool, right_stays: bool, most: int = 1000) -> Pair:
    return Pair(
        number=5, left=_node("a", 3), right=_node("b", 4), left_key=(1,), right_key=(1,),
        left_stays=left_stays, right_stays=right_stays, most=most,
    )  # fmt: skip


Row = tuple[int, int | None, int]


class World:
    """Rows of both sides, the step's states by key, and the emitted messages: the pairs that the next step knows."""

    def __init__(self, pair: Pair) -> None:
        self.pair, self.states, self.reported = pair, dict[bytes, PairState](), dict[bytes, bytes]()
        self.rows: tuple[dict[int, Row], dict[int, Row]] = ({}, {})

    def batch(self, changes: Iterable[tuple[int, int, Row | None]], chance: random.Random) -> list[Message]:
        """Change some rows, each once, given as (side, id, its row or None); return the emitted messages."""
        groups: dict[bytes, list[Message]] = {}
        left: list[Message] = []
        for number, at, after in changes:
            before = self.rows[number].get(at)
            if after is None:
                self.rows[number].pop(at, None)
            else:
                self.rows[number][at] = after
            if before != after:
                was, now = (None if row is None else text_of([*row]) for row in (before, after))
                for message in reported(Side(self.pair, number, 9), was, now, 1):
                    if message.k[0] == 9:
                        left.append(message)
                    else:
                        groups.setdefault(message.k, []).append(message)
        for k, some in groups.items():
            state, found = pairs_step(self.pair, 9, "wide", k, self.states.pop(k, None), chance.sample(some, len(some)))
            self.states |= {} if state is None else {k: state}
            left += found
        for message in sorted(left, key=lambda one: one.v):
            if message.op == DIM_PUT:
                self.reported[message.k[1:]] = values_text(message.p)
            else:
                self.reported.pop(message.k[1:], None)
        return left

    def wanted(self) -> dict[bytes, bytes]:
        """Return the pairs that must exist."""
        pairs: dict[bytes, bytes] = {}
        sides, nulls = [[*side.values()] for side in self.rows], [None] * 3
        met = [(a, b) for a in sides[0] for b in sides[1] if a[1] == b[1] is not None]
        for a, b in met:
            pairs[text_of([a[0], b[0]])] = text_of([*a, *b])
        alone = [{*rows} - {pair[side][0] for pair in met} for side, rows in enumerate(self.rows)]
        for at in alone[0] if self.pair.left_stays else ():
            pairs[text_of([at, None])] = text_of([*self.rows[0][at], *nulls])
        for at in alone[1] if self.pair.right_stays else ():
            pairs[text_of([None, at])] = text_of([*nulls, *self.rows[1][at]])
        return pairs


@pytest.mark.parametrize(("left", "right"), [(False, False), (True, False), (False, True), (True, True)])
def test_pairs_are_reported_once_and_only_where_they_read_otherwise(left: bool, right: bool) -> None:
    """With batches of any size and order, the emitted pairs are the existing ones, without repetition or unchanged
    values; a pair that never existed is not deleted. After the last row no state is left."""
    for seed in range(40):
        chance, world = random.Random(seed), World(_pair(left, right, 10_000))
        ids = chance.choice([4, 20, 100])
        for number in range(chance.randint(3, 12)):
            before, last = dict(world.reported), number == 11 or chance.random() < 0.1
            some = {(chance.randrange(2), chance.randrange(ids)) for _ in range(chance.choice([1, 5, ids]))}
            some |= {(side, at) for side in range(2) for at in world.rows[side]} if last else set()
            changes = [
                (side, at, None if last or chance.random() < 0.3 else (at, chance.choice([1, 1, 2, None]), number % 3))
                for side, at in sorted(some)
            ]
            left_over = world.batch(changes, chance)
            assert world.reported == world.wanted()
            puts = [message for message in left_over if message.op == DIM_PUT]
            assert len({message.k for message in puts}) == len(puts)
            assert all(before.get(message.k[1:]) != values_text(message.p) for message in puts)
            ends = [message.k[1:] for message in left_over if message.op == DIM_GONE]
            assert len(set(ends)) == len(ends)
            assert set(ends) <= set(before)
            if last:
                assert world.states == {}


def test_too_many_pairs_are_a_fault() -> None:
    """The error contains the table, the key and the number; nothing of the batch is stored or emitted."""
    chance, world = random.Random(0), World(_pair(True, False, 12))
    world.batch([(side, at, (at, 7, 0)) for side, most in ((0, 3), (1, 4)) for at in range(most)], chance)
    with pytest.raises(Fatal, match="table wide: 16 pairs of a and b at 7, more than 12"):
        world.batch([(0, 9, (9, 7, 0))], chance)


def test_a_key_with_null_meets_nothing_and_is_not_stored() -> None:
    """On an outer side the row is emitted alone, otherwise not at all."""
    chance = random.Random(0)
    for stays in (True, False):
        world = World(_pair(stays, False))
        world.batch([(0, 1, (1, None, 0)), (1, 1, (1, None, 0))], chance)
        assert world.reported == ({b"1,null": b"1,null,0,null,null,null"} if stays else {})
        assert world.states == {}
        world.batch([(0, 1, None)], chance)
        assert world.reported == {}
