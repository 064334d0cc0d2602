"""What a histogram is drawn over: all values, or only where nearly all rows are."""

from __future__ import annotations

import math
from statistics import NormalDist

import pytest

from tailorbird.web.dashboard.panels.asking import Extent, Steps, crowded


def steps(count: int = 20) -> Steps:
    return Steps(start=0.0, width=1.0, count=count)


NORMAL = [round(10_000 * (NormalDist(10, 2).cdf(i + 1) - NormalDist(10, 2).cdf(i))) for i in range(20)]
FALLING = [round(10_000 * (math.exp(-i / 2) - math.exp(-(i + 1) / 2))) for i in range(20)]


@pytest.mark.parametrize(
    ("counts", "few"),
    [
        ([99_999, *[0] * 18, 1], True),  # a value far ahead
        ([1, *[0] * 18, 99_999], True),  # far below
        ([0] * 10 + [5_000] * 4 + [0] * 6, True),
        ([500] * 20, False),
        (NORMAL, False),
        (FALLING, False),
        ([970, *[0] * 18, 30], False),  # three of a hundred are worth drawing
        ([0] * 20, False),
    ],
)
def test_values_far_from_nearly_all_rows_are_noticed(counts: list[int], few: bool) -> None:
    """So that one value does not leave all others a single bar; what people draw every day is drawn whole, without
    asking for percentiles."""
    assert crowded(steps(), counts) is few


def test_few_bars_are_never_crowded() -> None:
    """Of a flag, or a handful of whole numbers, each value has a bar."""
    assert not crowded(steps(1), [100])
    assert not crowded(steps(3), [100, 0, 0])


def test_what_is_drawn_leaves_out_what_lies_far_beyond() -> None:
    """The percentiles and their distance again; never more than there is."""
    assert Extent(low=0, high=1_000_000, most_low=1, most_high=101).shown == (0, 201)
    assert Extent(low=0, high=100, most_low=0, most_high=100).shown == (0, 100)
