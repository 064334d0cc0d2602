"""Properties of window functions over ordered partitions: their results, and the messages of a change."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from cdc.model.errors import TopologyError
from cdc.model.types import Canonical
from joins.query.group import Bag, Frame, Grouping, Total, WindowFunction, Windows
from joins.query.group import Result as AggregateResult
from joins.query.plan import SINK
from joins.query.value_types import INT64
from joins.runtime.records import REFUSED, ROW_GONE, ROW_PUT, values_of, values_of_text
from joins.steps.change_detector import Transition
from tests.joins.aggrandom import random_aggregate
from tests.joins.joincase import run_case
from tests.laws.test_aggregates import States, contributed, report

CONSTRUCTS = frozenset({"ordered", "groups", "view", "subquery", "with", "many", "null_keys", "over", "windows"})
QUICK, HISTORIES = 40, 5
_BEFORE = Frame(peers=False, start=-1, end=-1)


def test_windows_are_their_select() -> None:
    """Random windows over tables, joins and groups: rows move between partitions, tie, are re-read and vanish."""
    for seed in range(QUICK):
        run_case(random_aggregate(seed, seed // HISTORIES, CONSTRUCTS), seed)


@pytest.mark.matrix
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("first", range(10_000, 14_000, 500))
def test_many_more_windows_are_their_select(first: int) -> None:
    """4,000 more queries; a few are refused, since the generator makes joins that are not supported."""
    refused = list[str]()
    for seed in range(first, first + 500):
        try:
            run_case(random_aggregate(seed, constructs=CONSTRUCTS), seed)
        except TopologyError as error:
            refused.append(str(error))
    assert len(refused) < 25, refused


def _partitions(*functions: WindowFunction) -> Grouping:
    """Return rows of a partition, a worth and an id, the greatest worth first, as (id, worth, value of a function)."""
    bag = Bag(arguments=(0, 1), types=(INT64, INT64), needed=0, descending=(True, False))
    windows = Windows(
        ordered=1, functions=functions, totals=(Total(argument=0, type=INT64),), bags=(),
        results=(AggregateResult(function="sum", of=0, type=INT64, text="sum(worth)"),), names=(2,), values=(2, 1, 3),
    )  # fmt: skip
    return Grouping(
        change_detector=4, number=5, keys=(0,), key_types=(INT64,), arguments=(1, 2), totals=(), bags=(bag,),
        results=(), always=None, windows=windows,
    )  # fmt: skip


def _came(*rows: Sequence[Canonical]) -> list[Transition]:
    return [Transition(None, contributed(row), 0) for row in rows]


def test_a_change_writes_only_rows_whose_values_change() -> None:
    """A new row in the middle of 300 changes the rank of those after it, and lag of the next one only."""
    everything, chance = [[n, n] for n in range(0, 600, 2)], random.Random(0)
    for kind, number, written in (("rank", 0, 151), ("offset", -1, 2), ("aggregate", 0, 2)):
        function = WindowFunction(kind=kind, text=kind, number=number, argument=0, frame=_BEFORE)  # type: ignore[arg-type]  # the table's kinds
        group, states = _partitions(function), States()
        assert len(report(group, states, _came(*everything), chance)) == 300
        assert len(report(group, states, _came([299, 299]), chance)) == written, kind


def test_a_row_that_changes_its_place_keeps_its_id() -> None:
    """Equal rows are peers, whatever their key: they share a rank, and the next rank counts them."""
    group, states, chance = _partitions(WindowFunction(kind="rank", text="rank()")), States(), random.Random(0)
    report(group, states, _came([5, 1], [5, 2], [1, 3]), chance, SINK)
    moved = [Transition(contributed([5, 1]), contributed([1, 1]), 0)]
    found = report(group, states, moved, chance, SINK)
    assert [(one.op, values_of_text(one.k[1:]), values_of(one.p)) for one in found] == [
        (ROW_PUT, [1], [1, 1, 2]), (ROW_PUT, [3], [3, 1, 2]),
    ]  # fmt: skip
    gone = report(group, states, [Transition(contributed([5, 2]), None, 0)], chance, SINK)
    assert {one.op for one in gone} == {ROW_GONE, ROW_PUT}


def test_a_sum_that_does_not_fit_is_null_and_a_dead_letter() -> None:
    """Only rows whose frame is too large are NULL; there is one dead letter for each change."""
    running = WindowFunction(kind="aggregate", text="sum", frame=Frame(peers=True, start=None, end=0))
    group, states, chance = _partitions(running), States(), random.Random(0)
    found = report(group, states, _came([2**62, 1], [2**62 - 1, 2], [1, 3]), chance, SINK)
    assert [values_of(one.p)[2] for one in found if one.op == ROW_PUT] == [2**62, 2**63 - 1, None]
    assert [one.op for one in found].count(REFUSED) == 1
