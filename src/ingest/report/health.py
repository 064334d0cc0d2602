"""Decide whether a capture makes progress, by comparing its committed position with the end of the server's log.

It makes progress if it has committed everything that the server had written at the last check, or has committed
something recently. So an idle capture is healthy, but not one that hangs, waits for Kafka or its source, or cannot
process an event.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from cdc.model.event import Position
from cdc.process.verdict import HealthVerdict


@dataclass(slots=True, kw_only=True)
class Health:
    """Health of one capture. All times are seconds of one monotonic clock.

    `settling` is the tolerated time without a commit while lagging, or without an answer of the source. A polled source
    (`polls`) has no log end: its progress are commits and complete polls. `position` is the last committed one, `head`
    the end of the server's log.
    """

    started: float
    settling: float = 30.0
    polls: bool = False
    position: Position | None = None
    head: Position | None = None
    _progressed: float | None = field(default=None, init=False)
    _answered: float | None = field(default=None, init=False)
    _trouble: str = field(default="", init=False)
    _head_trouble: str = field(default="", init=False)
    _covered: bool = field(default=False, init=False)

    def committed(self, position: Position, now: float) -> None:
        """Record a commit. It is progress only if the position has advanced."""
        if self.position is None or _place(position) != _place(self.position):
            self._progressed = now
        self.position = position
        self._trouble = ""
        self._compare()

    def resumed(self, position: Position) -> None:
        """Record that a session reads from a committed position."""
        self.position, self._trouble = position, ""
        self._compare()

    def captured(self, now: float) -> None:
        """Record progress that does not advance the position: published snapshot rows, or a complete poll."""
        self._progressed = now
        self._trouble = ""

    def saw_head(self, head: Position, now: float) -> None:
        """Record the end of the server's log."""
        self.head, self._answered, self._head_trouble = head, now, ""
        self._compare()

    def no_head(self, why: str) -> None:
        """Record why the end of the server's log could not be read."""
        self._head_trouble = why

    def failed(self, why: str) -> None:
        """Record why a session ended, because the source or Kafka was unavailable. The next session clears it."""
        self._trouble = why

    def judge(self, now: float) -> HealthVerdict:
        """Return the verdict at time `now`, with the reason."""
        if self._covered and not self._trouble and self._answered is not None and now - self._answered <= self.settling:
            return HealthVerdict(status="moving", reason="caught up with the source's head")
        if self._progressed is None and now - self.started <= self.settling:
            trouble = self._trouble or self._head_trouble
            return HealthVerdict(status="starting", reason=trouble or "nothing is committed yet")
        since = now - (self._progressed if self._progressed is not None else self.started)
        if self.polls:
            if since <= self.settling:
                return HealthVerdict(status="moving", reason="polled recently")
            return HealthVerdict(status="stuck", reason=self._trouble or f"no poll was completed for {since:.0f} s")
        if self._trouble and since > self.settling:
            return HealthVerdict(status="away", reason=self._trouble)
        if self._answered is None or now - self._answered > self.settling:
            silent = now - (self._answered if self._answered is not None else self.started)
            more = f": {self._head_trouble}" if self._head_trouble else ""
            return HealthVerdict(status="away", reason=f"the source has not reported its head for {silent:.0f} s{more}")
        if since <= self.settling:
            return HealthVerdict(status="moving", reason="lags the source's head, and is catching up")
        return HealthVerdict(
            status="stuck", reason=f"lags the source's head, and nothing was committed for {since:.0f} s"
        )

    def _compare(self) -> None:
        if self.position is not None and self.head is not None:
            self._covered = covers(self.position, self.head)


def covers(position: Position, head: Position) -> bool:
    """Return whether everything before `head` was read; False for logs with different names, which cannot be
    compared."""
    if position.gtid_set and position.gtid_set == head.gtid_set:
        return True
    ours, theirs = _split(position.file), _split(head.file)
    return ours[0] == theirs[0] and (ours[1], position.pos) >= (theirs[1], head.pos)


def _split(file: str) -> tuple[str, int]:
    match = re.fullmatch(r"(.*?)(\d+)", file)
    return (match[1], int(match[2])) if match else (file, 0)


def _place(position: Position) -> tuple[str, int, str, int]:
    return position.file, position.pos, position.gtid_set, position.sequence
