"""How source transactions are grouped into commits of the log. Pure: the time is an argument."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How commits are grouped: a commit is made at the first transaction end behind `rows` rows or `linger` seconds.

    A commit that comes more than `behind` seconds after the source's is followed by a larger one, of `catch_up` rows or
    `behind` seconds: until the capture has caught up, commits cost more than they make fresh. An idle source's
    transaction is committed at once (see `IdleDetector`). A source transaction of more than `largest` records takes
    several commits. In seconds: `idle_commit` is how often the position alone is committed while only tables change
    that are not captured; `heartbeat`, how often although nothing happens at all (0: never); `ask`, how often an idle
    server is asked for the columns of tables in quarantine.
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
    """The commit in the making: `size` records, the first of them made at `first`."""

    def __init__(self, limits: Limits, now: float) -> None:
        self.limits, self.first = limits, now
        self.size = self._before = 0
        self._rows, self._linger = limits.rows, limits.linger

    def begin(self) -> None:
        """A source transaction begins."""
        self._before = self.size

    def add(self, records: int, now: float) -> None:
        """Records were appended."""
        if not self.size:
            self.first = now
        self.size += records

    def due(self, now: float) -> bool:
        """Whether it is to be committed as soon as a transaction ends."""
        return self.size >= self._rows or now - self.first >= self._linger

    @property
    def huge(self) -> bool:
        """Whether the open transaction alone has more records than a commit may hold."""
        return self.size - self._before >= self.limits.largest

    def committed(self, lag: float) -> None:
        """It is committed, so many seconds after the source's newest commit in it; the next one begins."""
        limits = self.limits
        self.size = self._before = 0
        catching_up = lag > limits.behind
        self._rows = limits.catch_up if catching_up else limits.rows
        self._linger = limits.behind if catching_up else limits.linger


class IdleDetector:
    """Whether a source is idle: `nothing_within(seconds)` tells whether its log stays silent for so long.

    At most once in `gap` seconds, since each time ends in a commit, and a hundred small commits a second cost more
    than capturing what is in them: a transaction that comes alone is told at once, those that follow it within the gap
    share a commit.
    """

    def __init__(self, nothing_within: Callable[[float], bool], gap: float, clock: Callable[[], float]) -> None:
        self._nothing_within, self._gap, self._clock = nothing_within, gap, clock
        self._next = 0.0

    def __call__(self) -> bool:
        """Wait out the gap, or until more arrives."""
        idle = self._nothing_within(max(0.0, self._next - self._clock()))
        if idle:
            self._next = self._clock() + self._gap
        return idle
