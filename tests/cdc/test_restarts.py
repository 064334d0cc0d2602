"""Restart policy of ended processes."""

from __future__ import annotations

from cdc.process.restarts import Restarts


def ends(restarts: Restarts, name: str, at: float, fatal: str | None = None) -> float:
    """Return the pause after an end at a time, after which it started again; -1 if it stays down."""
    if not restarts.ended(name, at, fatal=fatal):
        return -1.0
    assert restarts.waits(name)
    due = next(at + step / 4 for step in range(200) if name in restarts.due(at + step / 4))
    restarts.began(name, due)
    return due - at


def test_pauses_double_up_to_a_limit_and_are_forgotten_by_who_ran_long() -> None:
    """The pause doubles from 0.5 s to 30 s. After five minutes of work the next end counts as the first one."""
    restarts = Restarts()
    restarts.began("a", 0.0)
    at, found = 1.0, []
    for _ in range(8):
        found.append(ends(restarts, "a", at))
        at += found[-1] + 1.0
    assert found == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]
    assert ends(restarts, "a", at + 400) == 0.5


def test_the_same_fatal_reason_three_times_in_a_row_ends_it() -> None:
    """Numbers and ids may differ. Another reason, or an end that is not Fatal, resets the count; other parts
    continue."""
    restarts = Restarts()
    same = ["at 17, run 1f7927d0-1b1b-4cb4-b641-199221706a6a", "at 19, run 9ff7927d-1b1b-4cb4-b641-199221706a6b"]
    for step, fatal in enumerate([*same, "other", *same, None, *same]):
        assert ends(restarts, "a", 100.0 * step, fatal) > 0
    assert ends(restarts, "b", 900.0, same[0]) > 0
    assert ends(restarts, "a", 901.0, same[1]) == -1.0
    assert restarts.down == {"a": same[1]}
    assert not restarts.waits("a")
    assert restarts.due(10_000.0) == []
