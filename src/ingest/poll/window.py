"""Progress of a polled table: rows that are done, rows to read again, and rows that were already published.

A cycle reads every row after `done`, page by page. It cannot simply continue after the greatest cursor: a cursor is set
by a *statement* but becomes visible at its *commit*, up to `lag` later, and a clock may step back. So, at a cycle's
start:

    unseen rows will have a cursor > bound = min(greatest cursor, server's clock) - (lag + SLACK) - the clock's debt

and `done` follows `bound`, not the greatest cursor. Rows after it are read again and recognised by their fingerprints.
A table without changes for longer than the window is done up to its greatest cursor, so that idle tables are not read.
If the server's clock steps back, less time passes on the server than here, and `done` goes back by the difference.
Larger steps than the window repeat rows, because the fingerprints are gone, but never lose any.

A row is lost only if its transaction took longer than `lag`, if the writers' clocks differ by more than that, or if the
clock stepped back before the first poll *and* the column has another time zone than the server.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from cdc.model.errors import Fatal
from ingest.poll.poll_interfaces import Ask, Look, PolledRow

SLACK = 2_000_000  # microseconds: a clock's granularity of a second, and the jitter of reading it
_STEP = 1_000_000  # smaller differences are not steps: clocks with whole seconds vary that much
WIDEST = 16  # a page of one timestamp grows to this many times its limit; then pages continue by key
FINGERPRINT = 16


class Window:
    """Progress of the polling of one table. Call `begin`, then repeat `ask`, read the page and `take` until `finished`.

    `lag` is in microseconds; None for a feed, whose cursors grow and are unique, so that no row is read twice. `limit`
    is the number of rows per page. `memory` is the maximum number of stored fingerprints: further rows may be published
    twice, and `forgotten` counts them.
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
        # by how much the server's clock has stepped back: at time `_local`, and in this cycle
        self._debt = self._owed = 0
        self._newest: int | None = None
        self._since = 0
        self._bound: int | None = None
        self._began: tuple[int, int] = (0, 0)
        self._upto: int | None = None
        self._ask = Ask(start=None, after=None, limit=limit)

    def begin(self, look: Look, local: int) -> None:
        """Begin a cycle (one poll of the table). `local` is this process's monotonic clock in microseconds."""
        if self._window is not None:
            self._bound = self._bound_of(look, local, self._window)
        self._began, self._upto = (look.clock, local), look.newest
        if self._clock is None:  # measure an interrupted first cycle from its start
            self._clock, self._local = self._began
        self.finished = False
        start = None if self.done is None else self.done + (self._window is not None)
        self._ask = Ask(start=start, after=None, limit=self._limit)

    def ask(self) -> Ask:
        """Return the request for the next page."""
        return self._ask

    def take(self, rows: Sequence[PolledRow]) -> list[PolledRow]:
        """Process the rows of the requested page, and return those that are new. `ask` then returns the next page."""
        fresh = self._fresh(rows) if self._window is not None else self._fed(rows)
        if rows:
            self.reached = rows[-1].cursor if self.reached is None else max(self.reached, rows[-1].cursor)
        asked, full = self._ask, len(rows) >= self._ask.limit
        if full and asked.after is not None:
            self._ask = Ask(start=asked.start, after=rows[-1].key, limit=asked.limit)
        elif full and self._upto is not None and rows[-1].cursor > self._upto:
            self._finish()  # leave later rows for the next cycle, so that other tables are polled, too
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
        """Return the rows of a feed after the last published one.

        That row is read once more, to check that its number is unique.
        """
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
        """Advance `done` to `below`, before which everything was read, but not beyond `bound`."""
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
            kept = self.done - 2 * self._window  # so that a clock step within the window repeats no rows
            self._seen = {mark: cursor for mark, cursor in self._seen.items() if cursor > kept}
        self._pruned_size = len(self._seen)

    def dump(self) -> dict[str, Any]:
        """Return the progress as JSON, to be committed with the rows; inverse of `load`."""
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
        """Restore the progress; inverse of `dump`. Raises KeyError or ValueError if it is malformed."""
        self.done, self.reached, self.complete = stored["done"], stored["reached"], bool(stored["complete"])
        self._clock, self._local, self._debt = stored["clock"], stored["local"], stored["debt"]
        for cursor, text in stored["seen"]:
            marks = base64.b64decode(text)
            for at in range(0, len(marks), FINGERPRINT):
                self._seen[marks[at : at + FINGERPRINT]] = cursor
