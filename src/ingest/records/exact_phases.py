"""Track which tables are in an exact phase: every change's `before` is then the image of the row's previous record.

A consumer in an exact phase can add up changes (minus `before`, plus `after`) without storing the rows. A phase begins
when a snapshot has read all rows of a table and nothing of the table is being repaired. It ends with the first record
that is not an ordinary change with complete images, and with everything that may change rows without such a record: an
ALTER, a repair, a snapshot, rows that are skipped or held back. When in doubt, a phase ends; only a further snapshot
begins the next one. So a record is marked because everything before it was complete, and not because nothing was
noticed.

A phase's number is the last sequence number before it. Records of the phase contain it (`source.exact`). All later
records outside of a phase contain the number of the last one (`source.inexact_after`): a consumer that has added up
changes of a phase from that number on must begin again, or use a stored image of each row.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from hashlib import blake2b
from typing import Any

import orjson

from cdc.model.filters import TableRule, Unrepresentable
from cdc.model.schema import TableId
from cdc.persistent import PersistentMap, persistent

STATE = "exact"  # key in a checkpoint's state: by `database.table`, the last phase
ENDED = "inexact_after"  # key in a checkpoint's state: phases with numbers up to this one have ended, in all tables
IMAGES = 1  # increase it when a value gets another form in images: then all phases end
Phase = list[Any]  # its number, negative if it has ended; and what `images` returned


def images_of(rule: TableRule | None, unrepresentable: Unrepresentable) -> str:
    """Return a text that identifies the settings on which the images of a table's rows depend. It reveals none of
    them."""
    options = rule or TableRule()
    used = [
        IMAGES, unrepresentable, options.ignored_columns, options.only_columns, sorted(options.masks.items()),
        options.message_key_columns, options.exact_case, options.hides_any_case, options.by_name,
    ]  # fmt: skip
    return blake2b(orjson.dumps(used), digest_size=4).hexdigest()


class ExactPhases:
    """The exact phases of one source's tables.

    `images` returns a text for the settings on which a table's images depend (`images_of`). With other settings the
    same row has another image, so the phase ends. None: the source has no exact phases.
    """

    def __init__(self, images: Callable[[TableId], str] | None = None) -> None:
        self._images = images
        self._phases: PersistentMap[str, Phase] = PersistentMap()
        # tables of which a phase can begin: when asked, or only after a change with a number above `_tried`
        self._complete, self._later, self._tried = set[TableId](), set[TableId](), 0
        self._ended = 0
        self.open: dict[TableId, int] = {}  # the tables in a phase, with its number: read for each event of the log
        self.begun = False  # there was a phase

    def load(self, state: Mapping[str, Any], replayed: int | None, named: Callable[[str], TableId]) -> None:
        """Load the phases of a checkpoint. `named` returns the table of a name.

        `replayed` is the greatest sequence number before a rewind, while the log is read again: all phases that began
        up to it have ended."""
        self._phases, self.open = persistent(state.get(STATE, {})), {}
        self._complete, self._later = set(), set()
        self._ended = max(state.get(ENDED, 0), replayed or 0)
        for name, (number, known) in list(self._phases.items()):
            table = named(name)
            if number <= self._ended or self._images is None or self._images(table) != known:
                self._end(table)
            else:
                self.open[table] = number
        self.begun = bool(self._phases or self._ended)

    def state(self, before: Mapping[str, Any]) -> dict[str, Any]:
        """Return a checkpoint's state (`before`) with the current phases."""
        state = {name: value for name, value in before.items() if name not in (STATE, ENDED)}
        if self._phases:
            state[STATE] = self._phases
        if self._ended:
            state[ENDED] = self._ended
        return state

    def completed(self, table: TableId) -> None:
        """Note that a snapshot has read all rows of a table, so that a phase can begin."""
        if self._images is not None:
            self._complete.add(table)

    @property
    def any_complete(self) -> bool:
        """Return whether a phase can begin, now or after the next change."""
        return bool(self._complete or self._later)

    def complete(self, sequence: int) -> Collection[TableId]:
        """Return the tables whose phase can begin as soon as nothing of them is being repaired. `sequence` is the last
        number of a change."""
        if sequence != self._tried:
            self._tried = sequence
            self._complete |= self._later
            self._later.clear()
        return tuple(self._complete)

    def begin(self, table: TableId, sequence: int) -> bool:
        """Begin a phase after the last sequence number. Returns False, and does nothing yet, if the last phase has this
        number, too."""
        assert self._images is not None, "the source has exact phases"
        self._complete.discard(table)
        if sequence <= self._last(table.name):
            self._later.add(table)
            return False
        self._phases = self._phases.put(table.name, [sequence, self._images(table)])
        self.open[table], self.begun = sequence, True
        return True

    def _last(self, name: str) -> int:
        number: int = self._phases.get(name, (0, ""))[0]
        return max(abs(number), self._ended)

    def end(self, table: TableId) -> None:
        """End the phase of a table, if it is in one. The next one can begin after its next snapshot."""
        self._complete.discard(table)
        self._later.discard(table)
        if table in self.open:
            self._end(table)

    def end_each(self, tables: Iterable[TableId]) -> None:
        """End the phases of some tables."""
        for table in tables:
            self.end(table)

    def end_all(self) -> None:
        """End the phases of all tables."""
        self.end_each({*self._complete, *self._later, *self.open})

    def _end(self, table: TableId) -> None:
        number, images = self._phases[table.name]
        self.open.pop(table, None)
        self._phases = self._phases.put(table.name, [-abs(number), images])

    def mark(self, table: TableId, *, exact: bool) -> tuple[int, int]:
        """Return `exact` and `inexact_after` of a table's next records (`cdc.model.event.SourceInfo`).

        Records that are not `exact` end the phase, and a phase that could begin does not. Other records leave it
        possible: the phase then begins after them.
        """
        if exact and table in self.open:
            return self.open[table], 0
        if not exact:
            self.end(table)
        return 0, self._last(table.name)
