"""When a pipeline is warm."""

from __future__ import annotations

from collections.abc import Callable

_ROUNDS = 10  # at most
_SOON = 2.0  # seconds until the last change of a round is visible


def rounds_until_warm(a_round: Callable[[], float]) -> int:
    """Rounds of traffic until two in a row are visible soon, at least three; how many it took.

    Every JVM compiles and Spark forks on its first batches; what a reader would feel begins after them.
    """
    soon = 0
    for number in range(1, _ROUNDS + 1):
        soon = soon + 1 if a_round() < _SOON else 0
        if number >= 3 and soon >= 2:
            return number
    return _ROUNDS
