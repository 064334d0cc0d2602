"""Group source transactions into Kafka transactions (commits). Callers pass the time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """When a group is committed. All times are seconds.

    A commit follows the first transaction end after `rows` records or `linger` seconds. If the last commit was more
    than `behind` seconds later than its changes at the source, the next group is larger: `catch_up` records or `behind`
    seconds, because throughput then matters more than freshness. A source transaction of more than `largest` records
    takes several commits. `idle_commit` is the interval at which only the position is committed while other tables
    change, `heartbeat` that while nothing changes (0: never). `ask` is the interval of reading the columns of
    quarantined tables from an idle server. `gather`: while more than `many` tables are to be read, records of only
    their rows are committed after so long, because each commit waits until the topics of its tables exist.
    """

    rows: int = 5000
    linger: float = 0.05
    catch_up: int = 20_000
    behind: float = 1.0
    idle_commit: float = 1.0
    largest: int = 20_000
    heartbeat: float = 0.0
    ask: float = 5.0
    gather: float = 1.0
    many: int = 100


class Group:
    """The records of the next commit."""

    def __init__(self, limits: Limits, now: float) -> None:
        self.limits, self.first = limits, now
        self.size = self._before = 0
        self.live = False
        self._rows, self._linger = limits.rows, limits.linger

    def begin(self) -> None:
        """Note that a source transaction begins."""
        self._before = self.size

    def add(self, records: int, now: float, *, live: bool = True) -> None:
        """Count appended records. `live`: they are changes of the log, not rows that a snapshot has read."""
        if not self.size:
            self.first = now
        self.size += records
        self.live = self.live or live

    def gathers(self, now: float) -> bool:
        """Return whether to wait for more rows of snapshots, because there is nothing else in the group."""
        return not self.live and self.size < self._rows and now - self.first < self.limits.gather

    def due(self, now: float) -> bool:
        """Return whether to commit at the next transaction end."""
        return self.size >= self._rows or now - self.first >= self._linger

    @property
    def huge(self) -> bool:
        """Return whether the open source transaction alone has more records than a commit may contain."""
        return self.size - self._before >= self.limits.largest

    def committed(self, lag: float) -> None:
        """Start the next group. `lag` is how many seconds the commit was later than its last change at the source."""
        limits = self.limits
        self.size = self._before = 0
        self.live = False
        catching_up = lag > limits.behind
        self._rows = limits.catch_up if catching_up else limits.rows
        self._linger = limits.behind if catching_up else limits.linger


class IdleDetector:
    """Function that returns whether the source is idle. `nothing_within(seconds)` waits and returns True if no event
    came.

    It returns True at most once per `gap` seconds. Each True causes a commit, and a hundred small commits a second cost
    more than the capture itself. So a single transaction is committed at once, and those that follow within the gap
    share a commit.
    """

    def __init__(self, nothing_within: Callable[[float], bool], gap: float, clock: Callable[[], float]) -> None:
        self._nothing_within, self._gap, self._clock = nothing_within, gap, clock
        self._next = 0.0

    def __call__(self) -> bool:
        """Return whether the source is idle: no event arrives until `gap` seconds after the last True.

        Returns False as soon as an event arrives.
        """
        idle = self._nothing_within(max(0.0, self._next - self._clock()))
        if idle:
            self._next = self._clock() + self._gap
        return idle
