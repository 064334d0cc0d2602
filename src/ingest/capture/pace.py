"""When the loop of a session commits, and when it opens its stream anew. Pure: what happened and the time are given."""

from __future__ import annotations

from typing import Literal, NamedTuple

from ingest.capture.groups import Group, Limits

BUSY = 10.0  # seconds that a stream is kept ready for mends behind the last one
# Where a stream stands: in a transaction, between two, or at its source's end, where nothing waits to be read.
Stand = Literal["inside", "between", "idle"]


class Moment(NamedTuple):
    """What a step is judged by. `stopped`: the session is to end; `moved`: the position has come further; `repairs`:
    some are under way; `reads`: some are, or snapshots.
    """

    stand: Stand
    now: float
    stopped: bool
    moved: bool
    reads: bool
    repairs: bool


class Pace:
    """One stream's pace; `group` is the commit in the making, `busy` whether the stream was opened for many reads."""

    def __init__(self, limits: Limits, now: float, *, busy: bool, repairs: bool) -> None:
        self.limits, self.group, self.busy = limits, Group(limits, now), busy
        self._last, self._quiet = now, now + BUSY if repairs else 0.0
        self._progressed = self._reopen = False

    def progressed(self) -> None:
        """Snapshots or mends have come further, which is to be committed."""
        self._progressed = True

    def reopen(self) -> None:
        """The stream is to be opened anew behind the next commit."""
        self._reopen = True

    def signalled(self, stand: Stand, now: float) -> bool:
        """Whether it is time to look for signals: not with every transaction of a busy source."""
        return stand == "idle" or now - self._last > self.limits.idle_commit

    def due(self, moment: Moment) -> bool:
        """Whether what was appended, or the position alone, is to be committed now.

        In a transaction only where it has more records than a commit may hold.
        """
        if self.group.size:
            return moment.stopped or moment.stand != "between" or self.group.due(moment.now)
        since = moment.now - self._last
        if self._progressed or (self.limits.heartbeat and moment.stand == "idle" and since >= self.limits.heartbeat):
            return True
        return moment.moved and since >= self.limits.idle_commit

    def committed(self, now: float, lag: float, *, repairs: bool) -> None:
        """It is committed, so many seconds after the source's newest commit in it."""
        self._last, self._progressed = now, False
        self.group.committed(lag)
        if repairs:
            self._quiet = now + BUSY

    def again(self, moment: Moment) -> bool:
        """Whether the stream, behind a commit, is to be opened anew: for other needs, or with other knowledge."""
        if moment.stopped or moment.stand == "inside":
            return False
        return self._reopen or self.busy != (moment.reads or moment.now < self._quiet)
