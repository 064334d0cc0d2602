"""The time that verify waits for an index or a table that lags."""

from __future__ import annotations

from tailorbird.verify.settling import SettlingPolicy


def test_a_far_end_that_comes_nearer_is_waited_for() -> None:
    """An index that lags by minutes is no fault, as long as it moves."""
    settling = SettlingPolicy(standstill=60, most=600)
    settling.begin(0)
    assert not any(settling.used_up(now // 50, now) for now in range(0, 400, 10))


def test_one_that_stands_still_is_not() -> None:
    """Nor is it waited for again, at the next look."""
    settling = SettlingPolicy(standstill=60, most=600)
    settling.begin(100)
    assert [settling.used_up(7, now) for now in (100, 130, 159, 160)] == [False, False, False, True]
    settling.begin(200)
    assert settling.used_up(8, 200)


def test_all_waits_together_are_bounded() -> None:
    """The far end may make progress forever without reaching the cut. The time between two waits does not count."""
    settling = SettlingPolicy(standstill=60, most=600)
    for begin in (0, 1_000):
        settling.begin(begin)
        assert not any(settling.used_up(now, now) for now in range(begin, begin + 291, 10))
    settling.begin(2_000)
    assert [settling.used_up(now, now) for now in (2_000, 2_010, 2_020)] == [False, False, True]
