"""Decide when the main loop commits, and when it reopens its stream. Callers pass the time."""

from __future__ import annotations

from typing import Literal, NamedTuple

from ingest.capture.groups import Group, Limits

BUSY = 10.0  # seconds without repairs until the stream is reopened with `busy` False
# State of the stream: inside a transaction, between two, or idle at the end of the log.
Stand = Literal["inside", "between", "idle"]


class Moment(NamedTuple):
    """State of the main loop after one event.

    `stopped`: the session must end. `moved`: the position has advanced. `repairs`: repairs are running. `reads`:
    repairs or snapshots are running. `many`: many tables are still to be read.
    """

    stand: Stand
    now: float
    stopped: bool
    moved: bool
    reads: bool
    repairs: bool
    many: bool = False


class Pace:
    """Commit and reopen decisions for one stream. `group` is the open commit.

    `busy`: the stream was opened while many tables are read.
    """

    def __init__(self, limits: Limits, now: float, *, busy: bool, repairs: bool) -> None:
        self.limits, self.group, self.busy = limits, Group(limits, now), busy
        self._last, self._quiet = now, now + BUSY if repairs else 0.0
        self._progressed = self._reopen = False

    def progressed(self) -> None:
        """Request a commit because snapshots or repairs have progressed."""
        self._progressed = True

    def reopen(self) -> None:
        """Request that the stream is reopened after the next commit."""
        self._reopen = True

    def reads_signals(self, stand: Stand, now: float) -> bool:
        """Return whether to read signals now; for a busy source, not after every transaction."""
        return stand == "idle" or now - self._last > self.limits.idle_commit

    def due(self, moment: Moment) -> bool:
        """Return whether to commit now: the appended records, or only the position.

        Call it between transactions, or inside one that has more records than a commit may contain.
        """
        group, since = self.group, moment.now - self._last
        if group.size:
            if moment.many and not moment.stopped and group.gathers(moment.now):
                return False
            return moment.stopped or moment.stand != "between" or group.due(moment.now)
        gathers = moment.many and not moment.stopped and since < self.limits.gather
        if self._progressed and not gathers:
            return True
        if self.limits.heartbeat and moment.stand == "idle" and since >= self.limits.heartbeat:
            return True
        return moment.moved and since >= self.limits.idle_commit

    def committed(self, now: float, lag: float, *, repairs: bool) -> None:
        """Start the next group after a commit; `lag` is as in `Group.committed`."""
        self._last, self._progressed = now, False
        self.group.committed(lag)
        if repairs:
            self._quiet = now + BUSY

    def must_reopen(self, moment: Moment) -> bool:
        """Return whether to reopen the stream after a commit, because of other load or new schemas."""
        if moment.stopped or moment.stand == "inside":
            return False
        return self._reopen or self.busy != (moment.reads or moment.now < self._quiet)
