"""Detect that a pipeline is warm."""

from __future__ import annotations

from collections.abc import Callable

_ROUNDS = 10  # at most
_SOON = 2.0  # seconds until the last change of a round is visible


def rounds_until_warm(a_round: Callable[[], float]) -> int:
    """Run rounds of traffic until two in a row are visible soon, at least three; return their number.

    Every JVM compiles and Spark forks during its first batches. A measurement should start after them.
    """
    soon = 0
    for number in range(1, _ROUNDS + 1):
        soon = soon + 1 if a_round() < _SOON else 0
        if number >= 3 and soon >= 2:
            return number
    return _ROUNDS
