"""When a source counts as idle."""

from __future__ import annotations

from itertools import pairwise

from ingest.capture.groups import IdleDetector


class Log:
    """A log whose next transactions come at `arrivals`; waiting for them takes its time."""

    def __init__(self, *arrivals: float) -> None:
        self.now, self.arrivals = 0.0, list(arrivals)

    def nothing_within(self, seconds: float) -> bool:
        """Waits, until a transaction comes at the longest."""
        comes = self.arrivals[0] if self.arrivals else float("inf")
        self.now, silent = (self.now + seconds, True) if comes > self.now + seconds else (max(self.now, comes), False)
        return silent

    def read(self) -> None:
        """The next transaction, once it is there."""
        self.now = max(self.now, self.arrivals.pop(0))


def reported(log: Log, idle: IdleDetector) -> list[float]:
    """When the source was found idle, until nothing comes any more."""
    found = []
    while True:
        if idle():
            found.append(round(log.now, 3))
            if not log.arrivals:
                return found
        log.read()


def test_a_lone_transaction_waits_for_nothing() -> None:
    """Far apart, each is followed by a lull at once."""
    log = Log(1.0, 2.0, 3.0)
    assert reported(log, IdleDetector(log.nothing_within, 0.05, lambda: log.now)) == [0.0, 1.0, 2.0, 3.0]


def test_transactions_in_close_order_share_a_idle() -> None:
    """A hundred a second are told at most twenty times a second, and the last one within the gap."""
    log = Log(*(1 + n / 100 for n in range(101)))
    lulls = reported(log, IdleDetector(log.nothing_within, 0.05, lambda: log.now))
    assert lulls[:2] == [0.0, 1.0]
    assert lulls[-1] >= 2.0
    assert lulls[-1] <= 2.051
    apart = [after - before for before, after in pairwise(lulls[1:])]
    assert min(apart) >= 0.049


def test_without_a_gap_every_pause_counts() -> None:
    """As while a snapshot waits for its turns."""
    log = Log(1.0, 1.001, 1.002)
    assert reported(log, IdleDetector(log.nothing_within, 0.0, lambda: log.now)) == [0.0, 1.0, 1.001, 1.002]
