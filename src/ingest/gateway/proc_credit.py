"""Flow control of agents' records: a budget of bytes for the whole process, and a window for each session channel.

A window begins at `FIRST` bytes, which do not count towards the budget, so that each channel can always proceed. It
doubles if more arrives between two commits, up to half of the budget. It halves if most of it was not used. Records in
librdkafka's queue count, too. Otherwise a gateway would hold megabytes of each source while Kafka is unavailable.
"""

from __future__ import annotations

import threading
from collections import deque

from ingest.fleet.frames import PIECE
from ingest.fleet.wire import FIRST, MOST

TOTAL = 96 * 1024 * 1024  # the budget of a gateway process in bytes


class CreditBudget:
    """Budget of bytes that all session channels of a process share, in addition to `FIRST` for each. Thread-safe."""

    def __init__(self, total: int = TOTAL) -> None:
        self._total, self._held = total, 0
        self._lock = threading.Lock()

    @property
    def held(self) -> int:
        """Return the bytes of windows beyond `FIRST`, plus bytes in flight to Kafka."""
        return self._held

    @property
    def over(self) -> bool:
        """Return whether the budget is exceeded, which is possible because records in flight cannot be refused."""
        return self._held > self._total

    def take(self, size: int) -> bool:
        """Take `size` bytes for a window, if the half of the budget for windows allows it. Returns whether it does."""
        with self._lock:
            if self._held + size > self._total // 2:
                return False
            self._held += size
            return True

    def owe(self, size: int) -> None:
        """Take `size` bytes, even beyond the budget."""
        with self._lock:
            self._held += size

    def give(self, size: int) -> None:
        """Give back `size` bytes."""
        with self._lock:
            self._held -= size


class ChannelCredit:
    """Window and credit of one session channel.

    The event loop's thread calls `receive`; the session handler's thread calls all other methods.
    """

    def __init__(self, budget: CreditBudget) -> None:
        self._budget = budget
        self._granted, self._received, self._taken = FIRST, 0, 0
        # bytes received since the last commit, and their number when the window last grew
        self._window, self._since, self._grown = FIRST, 0, 0
        # of each message in the log's queue: number of its last record, and bytes
        self._undelivered = deque[tuple[int, int]]()
        self._in_flight = 0

    @property
    def window(self) -> int:
        """Return the number of bytes that the agent may have in flight."""
        return self._window

    @property
    def in_flight(self) -> int:
        """Return the number of bytes that the log has accepted and Kafka has not confirmed."""
        return self._in_flight

    @property
    def must_wait(self) -> bool:
        """Return whether the channel must wait for deliveries: the budget is used up and more than `FIRST` is in
        flight."""
        return self._in_flight > FIRST and self._budget.over

    def receive(self, size: int) -> bool:
        """Count received bytes. Returns False if they exceed the credit by more than one message."""
        self._received += size
        return self._received <= self._granted + PIECE

    def accept(self, size: int, records: int) -> int:
        """Count `size` bytes that the log has accepted, and return the new credit to grant the agent.

        `records` is the number of records since the start. The credit is greater than `size` if the window grows.
        """
        self._since += size
        self._undelivered.append((records, size))
        self._in_flight += size
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
        """Note that Kafka has confirmed the first `records` records."""
        while self._undelivered and self._undelivered[0][0] <= records:
            _, size = self._undelivered.popleft()
            self._in_flight -= size
            self._budget.give(size)

    def commit(self) -> None:
        """Note a commit: halve the window if little of it was used."""
        if self._since < self._window // 4:
            self._window = max(FIRST, self._window // 2)
        self._since = self._grown = 0

    def dropped(self) -> None:
        """Return all bytes in flight to the budget, after an abort."""
        self._undelivered.clear()
        self._budget.give(self._in_flight)
        self._in_flight = 0

    def close(self) -> None:
        """Return everything to the budget, at the end of the channel."""
        self.dropped()
        self._budget.give(self._granted - self._taken - FIRST)
