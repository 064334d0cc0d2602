"""Shrink a failing case: `python -m tests.joins.smallest SEED` prints it in the form of a file of tests/cases/joins.

Words are removed as long as the case still fails under some schedule with the same message.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from dataclasses import replace

from cdc.model.errors import TopologyError
from tests.joins.alive import run_alive
from tests.joins.aliverandom import random_life
from tests.joins.joincase import Case

Play = Callable[[Case, int], None]


def complaint(play: Play, case: Case, seed: int) -> str:
    """Return the failure message of a case; empty if it passes."""
    try:
        play(case, seed)
    except AssertionError as error:
        said = str(error).strip().splitlines()[-1].partition("{")[0]
        return re.sub(r"b'.*'|\d+", "#", said)
    return ""


def smallest(play: Play, case: Case, seed: int, schedules: int = 40) -> tuple[Case, int]:
    """Return the smallest case found that fails like this one, and the seed with which it does."""
    wanted = complaint(play, case, seed)
    assert wanted, "it does not fail"
    step = max(1, len(case.history) // 2)
    while step:
        at = 0
        while at < len(case.history):
            less = replace(case, history=case.history[:at] + case.history[at + step :])
            found = next((s for s in (seed, *range(schedules)) if _says(play, less, s, wanted)), None)
            if found is None:
                at += step
            else:
                case, seed = less, found
        step //= 2
    return case, seed


def _says(play: Play, case: Case, seed: int, wanted: str) -> bool:
    try:
        return complaint(play, case, seed) == wanted
    except (KeyError, ValueError, IndexError, TopologyError):
        return False  # without these words it is invalid


if __name__ == "__main__":
    number, per = int(sys.argv[1]), int(sys.argv[2])
    kinds = tuple(sys.argv[3].split(",")) if len(sys.argv) > 3 else None
    made, with_seed = smallest(run_alive, random_life(number, number // per, kinds), number)
    print(f"seed {with_seed}\n{made.text()}\n{complaint(run_alive, made, with_seed)}")
