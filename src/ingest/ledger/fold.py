"""Records of one partition of a change topic → its rows' hashes and its leaves' digests; pure.

For each key stands what its last record says, so nothing is counted twice: a row read again, a delete of what is gone,
a record that comes once more. A capture that was set back publishes the same numbers again: what is logged with a
number that is not greater than the one held is such a record, and so is what has a smaller one than the newest marker.
TRUNCATE, and the marker that ends a repeated snapshot, take away what has a smaller number. A tombstone says nothing
behind its delete; without it, it takes its row away: compaction has left nothing else of a delete.

Each change of a leaf is kept for a while with its place at the source (`Tagged`), so that the leaf can be told as of
any position of that time (`ingest.ledger.places`). Offsets are part of what a store commits: it resumes exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import orjson

from cdc.merkle.canonical import Covered, RowText
from cdc.merkle.leaves import Grid, LeafOf
from cdc.merkle.tree import NOTHING, Digest, delta
from cdc.model.naming import TRUNCATE_KEY

_ENDLESS = 2**62  # the number of a marker that has none
WINDOW_MS = 600_000  # how long changes are kept by their places


class LogRecord(NamedTuple):
    """One committed record of a partition; a tombstone has no value."""

    offset: int
    key: bytes
    value: bytes | None


class HeldRow(NamedTuple):
    """What a ledger keeps of a row: its hash, and the number and the offset of its last record."""

    hash: int
    sequence: int
    offset: int


class RowPlace(NamedTuple):
    """Where a ledger keeps a row: its leaf, then its record's key."""

    leaf: int
    key: bytes


class Tagged(NamedTuple):
    """What the changes with one place at the source did to one leaf."""

    leaf: int
    tag: str
    change: Digest


@dataclass(slots=True)
class Changes:
    """What a store is to commit at once: rows (None: gone), what leaves become richer by, changes by place.

    `unread` more records could not be read, the youngest with the number `unread_at`. Those below `forgiven` count no
    more: a marker ended their rows.
    """

    next_offset: int
    rows: dict[RowPlace, HeldRow | None] = field(default_factory=dict)
    leaves: dict[int, Digest] = field(default_factory=dict)
    tagged: dict[tuple[int, str], Digest] = field(default_factory=dict)
    unread: int = 0
    unread_at: int = 0
    forgiven: int = 0
    floor: int | None = None
    deleted: bytes | None = None

    def add(self, leaf: int, tag: str, change: Digest, *, keep: bool) -> None:
        """A leaf changed; `keep`: remember at which place."""
        known = self.leaves.get(leaf)
        self.leaves[leaf] = change if known is None else known + change
        if keep:
            known = self.tagged.get((leaf, tag))
            self.tagged[leaf, tag] = change if known is None else known + change


class RowStore(Protocol):
    """What is kept of one partition."""

    @property
    def floor(self) -> int:
        """The number of the newest marker: rows with smaller ones are gone, or were read again."""

    @property
    def deleted(self) -> bytes | None:
        """The key of the last record, where that deletes a row: its tombstone comes next."""

    def held(self, places: Iterable[RowPlace]) -> dict[RowPlace, HeldRow]:
        """What is held of these rows; those that it does not hold are not in the answer."""

    def remove_older(self, sequence: int) -> Mapping[int, Digest]:
        """Take away all rows with a smaller number, by the next commit; what leaves lose by that."""

    def commit(self, changes: Changes, now_ms: int) -> None:
        """Make everything durable, together with the next offset; forget places older than `WINDOW_MS`."""


class _Read(NamedTuple):
    """A record, understood: what becomes of its row, or (`place` None) below which number all rows go."""

    place: RowPlace | None
    hash: int | None
    sequence: int
    offset: int
    tag: str
    again: bool  # read beside the log, or a tombstone: it says what is, whatever its number
    ts_ms: int


class Fold:
    """Folds the records of one partition of a table into its store; at least once in, exactly once kept."""

    def __init__(
        self, store: RowStore, covered: Covered, grid: Grid, tag_of: Callable[[Mapping[str, Any]], str]
    ) -> None:
        self._store, self._tag_of = store, tag_of
        self._text, self._leaf = RowText(covered.forms), LeafOf(grid, covered)

    def fold(self, records: Sequence[LogRecord], next_offset: int, now_ms: int) -> int:
        """Fold records in order and commit; `next_offset` is what is read next. How many changed a row."""
        changed = 0
        batch: list[_Read] = []
        unread, deleted = list[int](), self._store.deleted
        for record in records:
            tombstone = record.value is None and record.key == deleted
            deleted = None
            if tombstone:
                continue
            try:
                read = self._read(record)
            except (ValueError, KeyError, TypeError):  # no envelope of this table: told, and not comparable
                unread.append(_sequence_of(record))
                continue
            if read.hash is None and not read.again:
                deleted = record.key
            if read.place is not None:
                batch.append(read)
                continue
            changed += self._rows(batch, read.offset, now_ms)
            batch, unread = [], [number for number in unread if number >= read.sequence]
            self._truncate(read, now_ms)
        return changed + self._rows(batch, next_offset, now_ms, unread, deleted)

    def _rows(
        self, batch: Sequence[_Read], next_offset: int, now_ms: int, unread: Sequence[int] = (),
        deleted: bytes | None = None,
    ) -> int:  # fmt: skip
        held: dict[RowPlace, HeldRow | None] = dict(self._store.held(read.place for read in batch if read.place))
        changes = Changes(next_offset, unread=len(unread), unread_at=max(unread, default=0), deleted=deleted)
        changed = 0
        since, floor = now_ms - WINDOW_MS, self._store.floor
        for place, after, sequence, offset, tag, again, ts_ms in batch:
            assert place is not None, "markers are folded by themselves"
            if sequence < floor:
                if not again:
                    continue  # published once more
                if after is not None:  # read, under a number that was given before: they were begun anew
                    floor = changes.floor = 0
            known = held.get(place)
            if known is None:
                if after is None:
                    continue
                before = None
            else:
                if 0 < sequence <= known.sequence and not again:
                    continue  # published once more
                before = known.hash
            now = None if after is None else HeldRow(after, sequence, offset)
            held[place] = changes.rows[place] = now
            if before != after:
                changes.add(place.leaf, tag, delta(before, after), keep=bool(tag) and ts_ms >= since)
                changed += 1
        self._store.commit(changes, now_ms)
        return changed

    def _truncate(self, read: _Read, now_ms: int) -> None:
        changes = Changes(read.offset + 1, forgiven=read.sequence)
        if read.sequence < _ENDLESS:
            changes.floor = max(read.sequence, self._store.floor)
        for leaf, lost in self._store.remove_older(read.sequence).items():
            changes.add(leaf, read.tag, NOTHING - lost, keep=bool(read.tag) and read.ts_ms >= now_ms - WINDOW_MS)
        self._store.commit(changes, now_ms)

    def _read(self, record: LogRecord) -> _Read:
        offset, key, value = record
        if value is None:
            if key == TRUNCATE_KEY:
                raise ValueError("a marker without a value")
            return _Read(RowPlace(self._leaf(orjson.loads(key)), key), None, 0, offset, "", True, 0)
        envelope = orjson.loads(value)
        op, source = envelope["op"], envelope["source"]
        sequence = source.get("sequence")
        sequence = sequence if isinstance(sequence, int) else 0
        tag, ts_ms = self._tag_of(source), envelope.get("ts_ms") or 0
        if op == "t":
            return _Read(None, None, sequence or _ENDLESS, offset, tag, False, ts_ms)
        place = RowPlace(self._leaf(orjson.loads(key)), key)
        if op == "d":
            return _Read(place, None, sequence, offset, tag, False, ts_ms)
        if op not in ("c", "u", "r"):
            raise ValueError(f"op {op!r}")
        return _Read(place, self._text.hash(envelope["after"]), sequence, offset, tag, op == "r", ts_ms)


def _sequence_of(record: LogRecord) -> int:
    """The number of a record that is no change of the table as it is now; a tombstone says nothing by itself."""
    if record.value is None:
        return 0
    try:
        number = orjson.loads(record.value)["source"]["sequence"]
    except (ValueError, KeyError, TypeError):
        return _ENDLESS
    return number if isinstance(number, int) else _ENDLESS
