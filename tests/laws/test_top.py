"""Properties of the first rows of a group: the messages of a change."""

from __future__ import annotations

import random
from collections.abc import Sequence

from cdc.model.types import Canonical
from joins.query.group import Bag, Grouping, Top
from joins.query.plan import SINK
from joins.query.value_types import INT64
from joins.runtime.records import ROW_GONE, ROW_PUT, values_of, values_of_text
from joins.steps.change_detector import Transition
from tests.laws.test_aggregates import States, contributed, report

ROWS = 500
MOST = 10


def _top(names: tuple[int, ...]) -> Grouping:
    """Return rows of a worth and an id, the greatest worth first, as (number, worth, id)."""
    bag = Bag(arguments=(0, 1), types=(INT64, INT64), needed=0, descending=(True, False))
    top = Top(most=MOST, ordered=2, names=names, values=(3, 1, 2))
    return Grouping(
        change_detector=4, number=5, keys=(0,), key_types=(INT64,), arguments=(1, 2), totals=(), bags=(bag,),
        results=(),
        always=None, top=top,
    )  # fmt: skip


def _came(rows: Sequence[Sequence[Canonical]]) -> list[Transition]:
    return [Transition(None, contributed(row), 0) for row in rows]


def _went(row: Sequence[Canonical]) -> list[Transition]:
    return [Transition(contributed(row), None, 0)]


def test_a_change_of_a_large_group_emits_its_first_rows() -> None:
    """In 500 rows, a change after the first ten emits nothing, one among them only moved rows."""
    group, states, chance = _top((2,)), States(), random.Random(0)
    everything = [[n, n] for n in range(ROWS)]
    chance.shuffle(everything)
    report(group, states, _came(everything), chance)
    for row, reported in (([17, 17], 0), ([ROWS - 3, ROWS - 3], 9)):
        assert len(report(group, states, _went(row), chance)) == reported  # itself, seven that move up, the eleventh


def test_named_by_its_number_a_row_changes_all_behind_it() -> None:
    """A better row moves the others down, and the last number stays; with fewer rows the last numbers are deleted."""
    group, states, chance = _top((0, 3)), States(), random.Random(0)
    report(group, states, _came([[1, 1], [2, 2]]), chance, SINK)
    reported = report(group, states, _came([[2, 1]]), chance, SINK)  # equal worth: the smaller id is first
    assert [(one.op, values_of_text(one.k[1:]), values_of(one.p)) for one in reported] == [
        (ROW_PUT, [7, 1], [1, 2, 1]), (ROW_PUT, [7, 2], [2, 2, 2]), (ROW_PUT, [7, 3], [3, 1, 1]),
    ]  # fmt: skip
    reported = report(group, states, _went([1, 1]), chance, SINK)
    assert [(one.op, values_of_text(one.k[1:])) for one in reported] == [(ROW_GONE, [7, 3])]
    assert {one.op for one in report(group, states, [*_went([2, 1]), *_went([2, 2])], chance, SINK)} == {ROW_GONE}
    assert states == {}
