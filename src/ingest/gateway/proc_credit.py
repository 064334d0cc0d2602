"""How much of agents' records a gateway holds: a budget of bytes for all lanes, and each lane's window.

A lane begins with `FIRST`, which is beside the budget, so that each of them goes on at any time; its window doubles
where more comes between two commits, as far as half of the budget goes, and halves where most of it was not needed.
What librdkafka has taken and Kafka has not yet counts, too: else a gateway would hold megabytes of each source while
Kafka is away.
"""

from __future__ import annotations

import threading
from collections import deque

from ingest.fleet.frames import PIECE
from ingest.fleet.wire import FIRST, MOST

TOTAL = 96 * 1024 * 1024  # bytes of a gateway process


class CreditBudget:
    """Bytes that all lanes of a process share beside the first ones of each; any thread may call it."""

    def __init__(self, total: int = TOTAL) -> None:
        self._total, self._held = total, 0
        self._lock = threading.Lock()

    @property
    def held(self) -> int:
        """Bytes that lanes may send beyond their first ones, and that are on their way to Kafka."""
        return self._held

    @property
    def over(self) -> bool:
        """Whether lanes hold more than there is, each by what can not be refused."""
        return self._held > self._total

    def take(self, size: int) -> bool:
        """Whether there is so much left of the half that windows may have; then it is taken."""
        with self._lock:
            if self._held + size > self._total // 2:
                return False
            self._held += size
            return True

    def owe(self, size: int) -> None:
        """Take so much, were there none."""
        with self._lock:
            self._held += size

    def give(self, size: int) -> None:
        """Give back what was taken."""
        with self._lock:
            self._held -= size


class ChannelCredit:
    """What one lane's agent may send. `came` is called where its messages come in, in one thread; all else by its desk,
    in another.
    """

    def __init__(self, budget: CreditBudget) -> None:
        self._budget = budget
        self._granted, self._came, self._taken = FIRST, 0, 0
        self._window, self._since, self._grown = FIRST, 0, 0  # bytes since the last commit, and since it grew last
        self._undelivered = deque[tuple[int, int]]()  # bytes that the log has taken, with the number of the last record
        self._flying = 0

    @property
    def window(self) -> int:
        """Bytes that may be on their way."""
        return self._window

    @property
    def flying(self) -> int:
        """Bytes that the log has taken, and Kafka has not."""
        return self._flying

    @property
    def must_wait(self) -> bool:
        """Whether Kafka has to take more before anything else is taken: the budget is used up, and this lane has more
        than the least that each may have on its way.
        """
        return self._flying > FIRST and self._budget.over

    def came(self, size: int) -> bool:
        """Records have come; False: more than there was credit for. One message may overdraw it."""
        self._came += size
        return self._came <= self._granted + PIECE

    def taken(self, size: int, records: int) -> int:
        """The log has taken `size` bytes, and so many records since it began; the credit that is given back for them:
        more, where the window is small for what comes.
        """
        self._since += size
        self._undelivered.append((records, size))
        self._flying += size
        self._budget.owe(size)
        grows = min(self._window, MOST - self._window)
        if grows and self._since - self._grown >= self._window and self._budget.take(grows):
            self._window, self._grown = self._window + grows, self._since
            credit = size + grows
        else:
            credit = max(0, size - (self._granted - self._taken - self._window))
            self._budget.give(size - credit)
        self._taken += size
        self._granted += credit
        return credit

    def delivered(self, records: int) -> None:
        """Kafka has so many records of those that the log has taken since it began."""
        while self._undelivered and self._undelivered[0][0] <= records:
            _, size = self._undelivered.popleft()
            self._flying -= size
            self._budget.give(size)

    def paused(self) -> None:
        """A commit: whoever needed little of the window keeps half of it."""
        if self._since < self._window // 4:
            self._window = max(FIRST, self._window // 2)
        self._since = self._grown = 0

    def dropped(self) -> None:
        """What the log had taken is given up."""
        self._undelivered.clear()
        self._budget.give(self._flying)
        self._flying = 0

    def close(self) -> None:
        """The lane is over."""
        self.dropped()
        self._budget.give(self._granted - self._taken - FIRST)
