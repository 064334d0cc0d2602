"""Group source transactions into commits of the log. The time is an argument."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of a commit. It is made at the first transaction end after `rows` rows or `linger` seconds.

    If a commit lags the source by more than `behind` seconds, the next one is larger: `catch_up` rows or `behind`
    seconds. Until the capture has caught up, throughput matters more than freshness. A transaction of an idle source is
    committed at once (see `IdleDetector`). A source transaction of more than `largest` records takes several commits.
    In seconds: `idle_commit` is the interval of commits of the position alone while only other tables change.
    `heartbeat` is that interval while nothing changes (0: never). `ask` is the interval of reading the columns of
    tables in quarantine from an idle server.
    """

    rows: int = 5000
    linger: float = 0.05
    catch_up: int = 20_000
    behind: float = 1.0
    idle_commit: float = 1.0
    largest: int = 20_000
    heartbeat: float = 0.0
    ask: float = 5.0


class Group:
    """The open commit: `size` records, the first of them appended at time `first`."""

    def __init__(self, limits: Limits, now: float) -> None:
        self.limits, self.first = limits, now
        self.size = self._before = 0
        self._rows, self._linger = limits.rows, limits.linger

    def begin(self) -> None:
        """Mark the begin of a source transaction."""
        self._before = self.size

    def add(self, records: int, now: float) -> None:
        """Count appended records."""
        if not self.size:
            self.first = now
        self.size += records

    def due(self, now: float) -> bool:
        """True if the group must be committed at the next transaction end."""
        return self.size >= self._rows or now - self.first >= self._linger

    @property
    def huge(self) -> bool:
        """True if the open transaction alone has more records than a commit may contain."""
        return self.size - self._before >= self.limits.largest

    def committed(self, lag: float) -> None:
        """Start the next group after a commit; `lag` is its delay in seconds after the source's last commit in it."""
        limits = self.limits
        self.size = self._before = 0
        catching_up = lag > limits.behind
        self._rows = limits.catch_up if catching_up else limits.rows
        self._linger = limits.behind if catching_up else limits.linger


class IdleDetector:
    """Detects an idle source. `nothing_within(seconds)` returns True if its log stays silent for that time.

    It reports idleness at most once per `gap` seconds. Each report ends in a commit, and a hundred small commits a
    second cost more than the capture itself. So a single transaction is published at once, and those that follow within
    the gap share a commit.
    """

    def __init__(self, nothing_within: Callable[[float], bool], gap: float, clock: Callable[[], float]) -> None:
        self._nothing_within, self._gap, self._clock = nothing_within, gap, clock
        self._next = 0.0

    def __call__(self) -> bool:
        """Return whether the source is idle. Waits until `gap` seconds after the last report, or for the next event.

        Returns False at once if an event arrives first.
        """
        idle = self._nothing_within(max(0.0, self._next - self._clock()))
        if idle:
            self._next = self._clock() + self._gap
        return idle
