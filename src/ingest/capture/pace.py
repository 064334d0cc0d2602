"""Decide when the loop of a session commits, and when it reopens its stream. The time is an argument."""

from __future__ import annotations

from typing import Literal, NamedTuple

from ingest.capture.groups import Group, Limits

BUSY = 10.0  # seconds after the last repair until the stream is reopened for normal load
# The state of a stream: inside a transaction, between two, or idle at the end of the log.
Stand = Literal["inside", "between", "idle"]


class Moment(NamedTuple):
    """State of the loop at one event.

    `stopped`: the session must end. `moved`: the position has advanced. `repairs`: repairs are running. `reads`:
    repairs or snapshots are running.
    """

    stand: Stand
    now: float
    stopped: bool
    moved: bool
    reads: bool
    repairs: bool


class Pace:
    """Pace of one stream. `group` is the open commit, `busy` means that the stream was opened for many table reads."""

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
        """True if signals should be read now; a busy source does not read them after every transaction."""
        return stand == "idle" or now - self._last > self.limits.idle_commit

    def due(self, moment: Moment) -> bool:
        """True if the appended records, or the position alone, must be committed now.

        It is never called inside a transaction, unless that has more records than a commit may contain.
        """
        if self.group.size:
            return moment.stopped or moment.stand != "between" or self.group.due(moment.now)
        since = moment.now - self._last
        if self._progressed or (self.limits.heartbeat and moment.stand == "idle" and since >= self.limits.heartbeat):
            return True
        return moment.moved and since >= self.limits.idle_commit

    def committed(self, now: float, lag: float, *, repairs: bool) -> None:
        """Start the next group after a commit; `lag` is its delay in seconds after the source's last commit in it."""
        self._last, self._progressed = now, False
        self.group.committed(lag)
        if repairs:
            self._quiet = now + BUSY

    def must_reopen(self, moment: Moment) -> bool:
        """True if the stream must be reopened after a commit, for another load or with new schemas."""
        if moment.stopped or moment.stand == "inside":
            return False
        return self._reopen or self.busy != (moment.reads or moment.now < self._quiet)
