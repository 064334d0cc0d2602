"""When a source counts as idle."""

from __future__ import annotations

from itertools import pairwise

from ingest.capture.groups import IdleDetector


class Log:
    """A log whose next transactions arrive at `arrivals`; waiting for them advances the clock."""

    def __init__(self, *arrivals: float) -> None:
        self.now, self.arrivals = 0.0, list(arrivals)

    def nothing_within(self, seconds: float) -> bool:
        """Wait until a transaction arrives, at most so many seconds; return whether none did."""
        comes = self.arrivals[0] if self.arrivals else float("inf")
        self.now, silent = (self.now + seconds, True) if comes > self.now + seconds else (max(self.now, comes), False)
        return silent

    def read(self) -> None:
        """Read the next transaction when it arrives."""
        self.now = max(self.now, self.arrivals.pop(0))


def reported(log: Log, idle: IdleDetector) -> list[float]:
    """Return the times at which the source was found idle, until no transaction remains."""
    found = []
    while True:
        if idle():
            found.append(round(log.now, 3))
            if not log.arrivals:
                return found
        log.read()


def test_a_lone_transaction_is_followed_by_idleness_at_once() -> None:
    """Transactions far apart are each followed by an idle moment at once."""
    log = Log(1.0, 2.0, 3.0)
    assert reported(log, IdleDetector(log.nothing_within, 0.05, lambda: log.now)) == [0.0, 1.0, 2.0, 3.0]


def test_transactions_in_close_order_share_an_idle_moment() -> None:
    """At a hundred per second the source is idle at most twenty times a second, and within the gap after the last
    one."""
    log = Log(*(1 + n / 100 for n in range(101)))
    moments = reported(log, IdleDetector(log.nothing_within, 0.05, lambda: log.now))
    assert moments[:2] == [0.0, 1.0]
    assert moments[-1] >= 2.0
    assert moments[-1] <= 2.051
    apart = [after - before for before, after in pairwise(moments[1:])]
    assert min(apart) >= 0.049


def test_without_a_gap_every_pause_counts() -> None:
    """This applies while a snapshot waits for its turns."""
    log = Log(1.0, 1.001, 1.002)
    assert reported(log, IdleDetector(log.nothing_within, 0.0, lambda: log.now)) == [0.0, 1.0, 1.001, 1.002]
