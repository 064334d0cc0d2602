"""Workers that share servers: started once, stopped once, and killed only by who has them alone."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.support.sharing import Sharing

WORKERS = 4


def test_the_first_starts_and_the_last_stops(tmp_path: Path) -> None:
    """Whenever somebody is within, it was started once more than stopped."""
    said: list[str] = []

    def work(number: int) -> None:
        with Sharing(tmp_path).running(lambda: said.append("start"), lambda: said.append("stop")):
            time.sleep(0.01 * number)
            assert said.count("start") == said.count("stop") + 1

    with ThreadPoolExecutor(WORKERS) as pool:
        list(pool.map(work, [*range(WORKERS), *range(WORKERS)]))
    assert said[::2] == ["start"] * (len(said) // 2)
    assert said[1::2] == ["stop"] * (len(said) // 2)


def test_alone_is_alone_and_has_its_turn(tmp_path: Path) -> None:
    """Nobody is beside who asked to be alone; others are beside each other."""
    within, crowds = list[bool](), set[int]()

    def work(alone: bool) -> None:
        for _ in range(20):
            with Sharing(tmp_path).held(alone=alone):
                within.append(alone)
                crowds.add(len(within))
                assert not any(within) or len(within) == 1
                time.sleep(0.001)
                within.remove(alone)

    with ThreadPoolExecutor(WORKERS) as pool:
        list(pool.map(work, [True, False, False, False]))
    assert max(crowds) > 1
