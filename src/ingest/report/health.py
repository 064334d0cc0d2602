"""Whether a capture is *moving*: its committed position judged against the server's head, not its process; pure.

Moving: all that the server had written when it was last asked is committed, or something was committed a short while
ago. So a capture that hangs, one whose Kafka or source is away, and one that cannot get past an event are all told from
one that has nothing to do.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from cdc.model.event import Position
from cdc.process.verdict import Judgement


@dataclass(slots=True, kw_only=True)
class Health:
    """What is known of one capture; all times are seconds of one clock that never goes back.

    `settling`: how long without a commit while behind, or without an answer of the source, is no fault yet. A polled
    source has no head: its commits and its `polled` cycles are its progress.
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
        """A commit: progress only if the position moved, or `captured` says that rows were written."""
        if self.position is None or _place(position) != _place(self.position):
            self._progressed = now
        self.position = position
        self._trouble = ""
        self._compare()

    def resumed(self, position: Position) -> None:
        """A session has begun to read from a position that is committed."""
        self.position, self._trouble = position, ""
        self._compare()

    def captured(self, now: float) -> None:
        """Rows were published (those of a snapshot do not move the position), or a poll came to its end."""
        self._progressed = now
        self._trouble = ""

    def saw_head(self, head: Position, now: float) -> None:
        """The server said where its log ends."""
        self.head, self._answered, self._head_trouble = head, now, ""
        self._compare()

    def no_head(self, why: str) -> None:
        """The server did not say where its log ends."""
        self._head_trouble = why

    def failed(self, why: str) -> None:
        """A session ended since source or Kafka was away; forgotten when the next one has begun."""
        self._trouble = why

    def judge(self, now: float) -> Judgement:
        """Whether the capture moves, and why not."""
        if self._covered and not self._trouble and self._answered is not None and now - self._answered <= self.settling:
            return Judgement(status="moving", reason="caught up with the source's head")
        if self._progressed is None and now - self.started <= self.settling:
            trouble = self._trouble or self._head_trouble
            return Judgement(status="starting", reason=trouble or "nothing is committed yet")
        since = now - (self._progressed if self._progressed is not None else self.started)
        if self.polls:
            if since <= self.settling:
                return Judgement(status="moving", reason="polled a short while ago")
            return Judgement(status="stuck", reason=self._trouble or f"no poll came to its end for {since:.0f} s")
        if self._trouble and since > self.settling:
            return Judgement(status="away", reason=self._trouble)
        if self._answered is None or now - self._answered > self.settling:
            silent = now - (self._answered if self._answered is not None else self.started)
            more = f": {self._head_trouble}" if self._head_trouble else ""
            return Judgement(status="away", reason=f"the source has not told its head for {silent:.0f} s{more}")
        if since <= self.settling:
            return Judgement(status="moving", reason="behind the source's head, and catching up")
        return Judgement(
            status="stuck", reason=f"behind the source's head, and nothing was committed for {since:.0f} s"
        )

    def _compare(self) -> None:
        if self.position is not None and self.head is not None:
            self._covered = covers(self.position, self.head)


def covers(position: Position, head: Position) -> bool:
    """Whether all that stands before `head` was read; False for logs of different names, which do not compare."""
    if position.gtid_set and position.gtid_set == head.gtid_set:
        return True
    ours, theirs = _split(position.file), _split(head.file)
    return ours[0] == theirs[0] and (ours[1], position.pos) >= (theirs[1], head.pos)


def _split(file: str) -> tuple[str, int]:
    match = re.fullmatch(r"(.*?)(\d+)", file)
    return (match[1], int(match[2])) if match else (file, 0)


def _place(position: Position) -> tuple[str, int, str, int]:
    return position.file, position.pos, position.gtid_set, position.sequence
