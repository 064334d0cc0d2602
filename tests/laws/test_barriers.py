"""Properties of barriers: for any crash of the driver and any progress of positions, everything that a barrier promises
was written, every batch's own barrier is visible, and finally all progress is published."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from joins.runtime.sink import next_timestamp
from joins.stores import timestamps
from joins.stores.timestamps import BatchTimestamps

ROWS = 3
SCHEDULES = 400


@dataclass
class Stored:
    """The state that survives a driver: bound timestamps, rows written, HBase's only visible barrier, Spark's
    commits."""

    bound: dict[int, int] = field(default_factory=dict)
    written: dict[int, int] = field(default_factory=dict)
    barrier: tuple[int, int, int] = (0, -1, 0)  # batch timestamp, batch, position
    committed: int = -1
    position: int = 0

    def put(self, timestamp: int, batch: int, position: int) -> None:
        """Put the barrier: HBase shows the newest cell; Solr's version check drops an older document."""
        self.barrier = max(self.barrier, (timestamp, batch, position))
        self.check()

    def check(self) -> None:
        timestamp, batch, _ = self.barrier
        for number, bound in self.bound.items():
            assert bound > timestamp or self.written[number] == ROWS, f"batch {number} is half written, and looks whole"
        for number in range(self.committed + 1):
            assert batch >= number, f"the barrier of batch {number} is hidden by one of batch {batch}"


class Driver:
    """One run of the driver: it processes a batch step by step, and puts barriers between batches at any moment."""

    def __init__(self, stored: Stored, clock: Callable[[], int]) -> None:
        self.stored, self.clock = stored, clock
        waiting = stored.committed + 1 in stored.bound
        last = max([stored.barrier[0], *stored.bound.values()])
        self.timestamps = BatchTimestamps(last=last, committed=stored.committed, bound=waiting)
        self.finished = stored.committed
        self.steps: list[Callable[[], None]] = []

    def batch(self) -> None:
        """Take one more step of the current batch."""
        if not self.steps:
            number = self.stored.committed + 1
            self.steps = [lambda: self.bind(number), *[lambda: self.write(number)] * ROWS]
            self.steps += [lambda: self.finish(number), lambda: self.commit(number)]
        self.steps.pop(0)()

    def bind(self, number: int) -> None:
        timestamp = self.timestamps.of_batch(number, self.stored.bound.get(number), self.clock())
        self.stored.bound.setdefault(number, timestamp)
        self.stored.written.setdefault(number, 0)

    def write(self, number: int) -> None:
        self.stored.written[number] = min(ROWS, self.stored.written[number] + 1)

    def finish(self, number: int) -> None:
        # a replay repeats its writes: the batch is complete only after all of them
        self.stored.written[number] = ROWS
        self.finished = number
        self.stored.put(self.stored.bound[number], number, self.stored.position)

    def commit(self, number: int) -> None:
        self.stored.committed = number
        self.stored.check()

    def follow(self) -> None:
        """Positions have advanced: put a barrier between batches, if allowed."""
        if self.finished < 0 or self.stored.barrier[2] == self.stored.position:
            return
        timestamp = self.timestamps.between(self.stored.committed, self.clock())
        if timestamp is not None:
            self.stored.put(timestamp, self.finished, self.stored.position)


def run_schedule(seed: int) -> None:
    chance, now = random.Random(seed), [1000]
    stored = Stored()

    def clock() -> int:
        now[0] += chance.choice([-3, 0, 0, 1, 5])
        return now[0]

    driver = Driver(stored, clock)
    for _ in range(60):
        match chance.choice(["batch", "batch", "batch", "follow", "move", "die"]):
            case "batch":
                driver.batch()
            case "follow":
                driver.follow()
            case "move":
                stored.position += 1
            case "die":
                driver = Driver(stored, clock)
    while driver.steps or stored.committed + 1 in stored.bound:  # Spark repeats what it had begun
        driver.batch()
    driver.follow()
    assert stored.committed < 0 or stored.barrier[2] == stored.position, "the reached position was not published"


def run_schedules() -> None:
    for seed in range(SCHEDULES):
        run_schedule(seed)


def test_no_barrier_says_too_much() -> None:
    """With any order of batches, positions and crashes, no half-written batch looks complete, no batch's barrier is
    hidden, and at the end the newest position is published."""
    run_schedules()


def test_the_law_notices_a_barrier_over_a_bound_timestamp(monkeypatch: pytest.MonkeyPatch) -> None:
    """With barriers between batches at any time, as in an earlier version, the test finds the half-written batch."""

    class Hasty(BatchTimestamps):
        def between(self, committed: int, now_ms: int) -> int | None:
            self._last = next_timestamp(now_ms, self._last)
            return self._last

    monkeypatch.setitem(globals(), "BatchTimestamps", Hasty)
    with pytest.raises(AssertionError, match=r"is half written|is hidden"):
        run_schedules()


def test_the_law_notices_that_a_death_forgets(monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver that does not check for a bound timestamp when it starts breaks the promise as well."""

    class Forgetful(BatchTimestamps):
        def __init__(self, *, last: int, committed: int, bound: bool) -> None:
            super().__init__(last=last, committed=committed, bound=False)

    monkeypatch.setitem(globals(), "BatchTimestamps", Forgetful)
    with pytest.raises(AssertionError, match=r"is half written|is hidden"):
        run_schedules()


def test_timestamps_grow() -> None:
    """Every timestamp is greater than the last one, whatever the clock shows; a replay keeps its timestamp."""
    made = timestamps.BatchTimestamps(last=10, committed=4, bound=False)
    assert made.of_batch(5, None, 5) == 12
    assert made.between(4, 100) is None
    assert made.between(5, 5) == 14
    assert timestamps.BatchTimestamps(last=30, committed=4, bound=True).between(4, 100) is None
    assert timestamps.BatchTimestamps(last=30, committed=4, bound=True).of_batch(5, 20, 100) == 20
