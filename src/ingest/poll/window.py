"""How far a polled table is done, which rows must be read again, and which of them were told already; pure.

A cycle reads every row behind `done`, page by page. Why it does not simply go on behind the greatest cursor: a cursor
is set by a *statement* but seen at its *commit*, up to `lag` later, and a clock may step back. So, at a cycle's start:

    unseen rows will have a cursor > bound = min(greatest cursor, server's clock) - (lag + SLACK) - what the clock owes

and `done` follows `bound`, not the greatest cursor; rows behind it are read again and recognised by their fingerprints.
A table that has been quiet for longer than the window is done up to its greatest cursor, so that idle tables cost no
reading. A step back of the clock shows as less time passed on the server than here: `done` goes back by as much. Steps
back of more than the window make rows repeat (the fingerprints are gone), never lose one.

Loses a row only if its transaction took longer than `lag`, if writers' clocks differ by more, or if the clock stepped
back before the very first poll *and* the column holds another zone than the server's.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from cdc.model.errors import Fatal
from ingest.poll.poll_interfaces import Ask, Look, PolledRow

SLACK = 2_000_000  # microseconds: a clock's granularity of a second, and the jitter of reading it
_STEP = 1_000_000  # less is no step: clocks that tell whole seconds seem to wander as much
WIDEST = 16  # a wedged page grows to so many times its limit, then goes on by key within the one timestamp
FINGERPRINT = 16


class Window:
    """One table's progress; `begin` a cycle, then `ask`, read, `take` until `finished`.

    `lag` in microseconds, None for a feed, whose cursors only grow and are never shared: nothing is read twice then.
    `memory` bounds the fingerprints kept: rows beyond it may be told twice, which is counted in `forgotten`.
    """

    def __init__(self, *, lag: int | None, limit: int, memory: int = 100_000) -> None:
        self._window = None if lag is None else lag + SLACK
        self._limit, self._memory = limit, memory
        self.done: int | None = None
        self.reached: int | None = None
        self.complete = False
        self.finished = True
        self.forgotten = 0
        self.steps = 0
        self._seen: dict[bytes, int] = {}
        self._pruned_size = 0
        self._clock: int | None = None
        self._local = 0
        self._debt = self._owed = 0  # what the clock owes: as of `_local`, and as of the cycle that runs
        self._newest: int | None = None
        self._since = 0
        self._bound: int | None = None
        self._began: tuple[int, int] = (0, 0)
        self._upto: int | None = None
        self._ask = Ask(start=None, after=None, limit=limit)

    def begin(self, look: Look, local: int) -> None:
        """Begin a cycle; `local` is our own clock in microseconds, which never goes back within a process."""
        if self._window is not None:
            self._bound = self._bound_of(look, local, self._window)
        self._began, self._upto = (look.clock, local), look.newest
        if self._clock is None:  # a first cycle that is cut short is measured from its start
            self._clock, self._local = self._began
        self.finished = False
        start = None if self.done is None else self.done + (self._window is not None)
        self._ask = Ask(start=start, after=None, limit=self._limit)

    def ask(self) -> Ask:
        """The next page to read."""
        return self._ask

    def take(self, rows: Sequence[PolledRow]) -> list[PolledRow]:
        """Rows of the page asked for → those that were not told yet, each once; moves on."""
        fresh = self._fresh(rows) if self._window is not None else self._fed(rows)
        if rows:
            self.reached = rows[-1].cursor if self.reached is None else max(self.reached, rows[-1].cursor)
        asked, full = self._ask, len(rows) >= self._ask.limit
        if full and asked.after is not None:
            self._ask = Ask(start=asked.start, after=rows[-1].key, limit=asked.limit)
        elif full and self._upto is not None and rows[-1].cursor > self._upto:
            self._finish()  # the rest came in meanwhile: the next cycle's, so that other tables have their turn
        elif full and rows[-1].cursor != asked.start:
            self._move(rows[-1].cursor - 1)
            self._ask = Ask(start=rows[-1].cursor, after=None, limit=self._limit)
        elif full and asked.limit * 2 <= self._limit * WIDEST:
            self._ask = Ask(start=asked.start, after=None, limit=asked.limit * 2)
        elif full:
            self._ask = Ask(start=asked.start, after=rows[-1].key, limit=asked.limit)
        elif asked.after is not None and asked.start is not None:
            self._move(asked.start)
            self._ask = Ask(start=asked.start + 1, after=None, limit=self._limit)
        else:
            self._finish()
        return fresh

    def _bound_of(self, look: Look, local: int, window: int) -> int | None:
        passed = max(0, local - self._local) if self._clock is not None else 0
        step = 0 if self._clock is None else passed - (look.clock - self._clock)
        self._owed = max(0, self._debt - passed)
        if step >= _STEP:
            self.steps += 1
            self._owed += step
            if self.done is not None:
                self.done -= step + window
        if look.newest != self._newest:
            self._newest, self._since = look.newest, local
        if look.newest is None:
            return None
        quiet = local - self._since >= window and not self._owed
        reached = look.newest if quiet else look.newest - window - (self._owed + window if self._owed else 0)
        return min(reached, look.clock - window)

    def _fresh(self, rows: Sequence[PolledRow]) -> list[PolledRow]:
        fresh, seen = [], self._seen
        for row in rows:
            if row.fingerprint in seen:
                continue
            fresh.append(row)
            if len(seen) < self._memory:
                seen[row.fingerprint] = row.cursor
            else:
                self.forgotten += 1
        return fresh

    def _fed(self, rows: Sequence[PolledRow]) -> list[PolledRow]:
        """Rows of a feed behind the last one told, which is read again to see that it is alone."""
        for before, after in pairwise(rows):
            if after.cursor <= before.cursor:
                raise Fatal(
                    f"two rows of a feed share the number {after.cursor}",
                    "a feed's numbers must be unique: add a UNIQUE index, or poll with mode: updated_at",
                )
        fresh = [row for row in rows if self.done is None or row.cursor > self.done]
        if rows:
            self.done = rows[-1].cursor if self.done is None else max(self.done, rows[-1].cursor)
        return fresh

    def _move(self, below: int) -> None:
        """Everything up to `below` has been read: done, as far as nothing can come in there any more."""
        if self._window is None or self._bound is None:
            return
        below = min(below, self._bound)
        self.done = below if self.done is None else max(self.done, below)
        if len(self._seen) > self._pruned_size * 1.25 + 10_000 or len(self._seen) >= self._memory:
            self._prune()

    def _finish(self) -> None:
        self.finished = self.complete = True
        (self._clock, self._local), self._debt = self._began, self._owed
        if self._bound is not None:
            self._move(self._bound)
        self._prune()

    def _prune(self) -> None:
        if self.done is not None and self._window is not None:
            kept = self.done - 2 * self._window  # so that a step back within the window repeats nothing
            self._seen = {mark: cursor for mark, cursor in self._seen.items() if cursor > kept}
        self._pruned_size = len(self._seen)

    def dump(self) -> dict[str, Any]:
        """The progress as JSON, to be committed with the rows told; `load` in another process goes on from there."""
        by_cursor: dict[int, list[bytes]] = {}
        for mark, cursor in self._seen.items():
            by_cursor.setdefault(cursor, []).append(mark)
        return {
            "done": self.done,
            "reached": self.reached,
            "complete": self.complete,
            "clock": self._clock,
            "local": self._local,
            "debt": self._debt,
            "seen": [[cursor, base64.b64encode(b"".join(marks)).decode()] for cursor, marks in by_cursor.items()],
        }

    def load(self, stored: dict[str, Any]) -> None:
        """Inverse of `dump`; KeyError or ValueError when it is none."""
        self.done, self.reached, self.complete = stored["done"], stored["reached"], bool(stored["complete"])
        self._clock, self._local, self._debt = stored["clock"], stored["local"], stored["debt"]
        for cursor, text in stored["seen"]:
            marks = base64.b64decode(text)
            for at in range(0, len(marks), FINGERPRINT):
                self._seen[marks[at : at + FINGERPRINT]] = cursor
