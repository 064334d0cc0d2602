"""Warm up a pipeline before a measurement."""

from __future__ import annotations

from collections.abc import Callable

_ROUNDS = 10  # at most
_SOON = 2.0  # seconds until the last change of a round is visible


def rounds_until_warm(a_round: Callable[[], float]) -> int:
    """Run rounds of traffic until changes become visible quickly in two rounds in a row. Return the number of
    rounds.

    `a_round` returns the seconds until its last change is visible. There are at least three rounds, because JVMs
    compile and Spark starts its workers during the first batches."""
    soon = 0
    for number in range(1, _ROUNDS + 1):
        soon = soon + 1 if a_round() < _SOON else 0
        if number >= 3 and soon >= 2:
            return number
    return _ROUNDS
