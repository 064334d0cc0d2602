"""What the joins benchmark makes of its readings."""

from __future__ import annotations

import pytest

from benchmarks.joins.report import Reading, growth, line_of, misses


def reading(engine: str, batches: list[tuple[int, float, int]]) -> Reading:
    changes, seconds = sum(n for n, _, _ in batches), sum(s for _, s, _ in batches)
    return Reading(engine=engine, changes=changes, seconds=seconds, state_bytes=1, batches=tuple(batches))


WARM_UP = (100, 9.0, 0)
FLINK = Reading(engine="flink", changes=500, seconds=20.0, state_bytes=1)


def test_a_slower_half_is_a_miss_also_where_it_wrote_more_rows_which_is_told() -> None:
    ours = reading("ours", [WARM_UP, (100, 1.0, 100), (100, 1.0, 100), (100, 2.0, 300), (100, 2.0, 300)])
    assert misses("star", ours, FLINK) == ["star: the second half runs at 0.50× the first, 0.9× is asked for"]
    line = line_of("star", ours, FLINK)
    assert "second half 1.00× the first in changes read and rows written, 0.50× in changes read" in line
    assert "rows written for a change: 1.00, then 3.00" in line


def test_a_half_that_does_less_a_second_is_told() -> None:
    ours = reading("ours", [WARM_UP, (100, 1.0, 100), (100, 1.2, 100)])
    assert misses("n1", ours, FLINK) == ["n1: the second half runs at 0.83× the first, 0.9× is asked for"]
    assert not misses("n1", reading("ours", [WARM_UP, (100, 1.0, 100), (100, 1.1, 100)]), FLINK)
    assert misses("n1", reading("ours", [(100, 100.0, 0)]), FLINK) == ["n1: 0.04× Flink, at least 0.7× is asked for"]


def test_growth_is_the_cost_of_a_change_in_the_larger_tables() -> None:
    small = [reading("ours", [WARM_UP, (100, 1.0, 0)]), reading("ours", [WARM_UP, (100, 3.0, 0)])]
    assert growth(small, [reading("ours", [WARM_UP, (100, 3.0, 0)])]) == pytest.approx(1.5)
