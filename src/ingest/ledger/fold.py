"""Fold the records of one partition of a change topic into hashes of rows and digests of leaves.

Each key has the state of its last record. So repeated snapshots, deletes of missing rows, and repeated records are not
counted twice. A capture that was set back publishes the same sequence numbers again. Such a record has a number that is
not greater than that of its row, or smaller than that of the newest marker; it is skipped. TRUNCATE, and the marker
that ends a repeated snapshot, remove rows with smaller numbers. A tombstone after its delete is ignored. Without the
delete, which compaction may have removed, it deletes its row.

Each change of a leaf is stored for some time with its position at the source (`TaggedChange`). So the digest of a leaf
can be computed as of any position of that time (`ingest.ledger.places`). A store commits the offset together with the
data, so it resumes exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import orjson

from cdc.merkle.canonical import CoveredColumns, RowText
from cdc.merkle.leaves import Grid, LeafOf
from cdc.merkle.tree import NOTHING, Digest, delta
from cdc.model.naming import TRUNCATE_KEY

_ENDLESS = 2**62  # sequence number for a marker without one
WINDOW_MS = 600_000  # time that changes are kept with their positions


class LogRecord(NamedTuple):
    """One committed record of a partition; a tombstone has no value."""

    offset: int
    key: bytes
    value: bytes | None


class HeldRow(NamedTuple):
    """Stored state of a row: its hash, and the sequence number and offset of its last record."""

    hash: int
    sequence: int
    offset: int


class RowPlace(NamedTuple):
    """Location of a row in the ledger: its leaf and its record key."""

    leaf: int
    key: bytes


class TaggedChange(NamedTuple):
    """The change of one leaf's digest by all changes with one source position."""

    leaf: int
    tag: str
    change: Digest


@dataclass(slots=True)
class Changes:
    """Changes that a store commits in one transaction: rows (None: deleted), deltas of leaves, deltas by position.

    `unread` further records could not be read; the highest sequence number of them is `unread_at`. Those below
    `forgiven` no longer count, because a marker deleted their rows.
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
        """Add a change of a leaf. With `keep`, also store it by position."""
        known = self.leaves.get(leaf)
        self.leaves[leaf] = change if known is None else known + change
        if keep:
            known = self.tagged.get((leaf, tag))
            self.tagged[leaf, tag] = change if known is None else known + change


class RowStore(Protocol):
    """Stored state of one partition."""

    @property
    def floor(self) -> int:
        """Sequence number of the newest marker. Rows with smaller numbers are deleted, or were read again."""

    @property
    def deleted(self) -> bytes | None:
        """Key of the last record if it was a delete, whose tombstone follows."""

    def held(self, places: Iterable[RowPlace]) -> dict[RowPlace, HeldRow]:
        """Return the stored rows at these places. Missing rows are not in the result."""

    def remove_older(self, sequence: int) -> Mapping[int, Digest]:
        """Delete all rows with a smaller number in the next commit. Returns the lost digests by leaf."""

    def commit(self, changes: Changes, now_ms: int) -> None:
        """Commit all changes and the next offset. Remove position entries older than `WINDOW_MS`."""


class _ParsedRecord(NamedTuple):
    """A parsed record: the new state of its row, or (`place` None) the number below which all rows are deleted."""

    place: RowPlace | None
    hash: int | None
    sequence: int
    offset: int
    tag: str
    again: bool  # from a snapshot, or a tombstone: it applies whatever its number is
    ts_ms: int


class Fold:
    """Folds the records of one partition of a table into its store. Records may repeat; each counts exactly once."""

    def __init__(
        self, store: RowStore, covered: CoveredColumns, grid: Grid, tag_of: Callable[[Mapping[str, Any]], str]
    ) -> None:
        self._store, self._tag_of = store, tag_of
        self._text, self._leaf = RowText(covered.forms), LeafOf(grid, covered)

    def fold(self, records: Sequence[LogRecord], next_offset: int, now_ms: int) -> int:
        """Fold records in order and commit with `next_offset`. Returns the number of records that changed a row."""
        changed = 0
        batch: list[_ParsedRecord] = []
        unread, deleted = list[int](), self._store.deleted
        for record in records:
            tombstone = record.value is None and record.key == deleted
            deleted = None
            if tombstone:
                continue
            try:
                read = self._read(record)
            except (ValueError, KeyError, TypeError):  # not an envelope of this table: counted, and not comparable
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
        self, batch: Sequence[_ParsedRecord], next_offset: int, now_ms: int, unread: Sequence[int] = (),
        deleted: bytes | None = None,
    ) -> int:  # fmt: skip
        held: dict[RowPlace, HeldRow | None] = dict(self._store.held(read.place for read in batch if read.place))
        changes = Changes(next_offset, unread=len(unread), unread_at=max(unread, default=0), deleted=deleted)
        changed = 0
        since, floor = now_ms - WINDOW_MS, self._store.floor
        for place, after, sequence, offset, tag, again, ts_ms in batch:
            assert place is not None, "markers are folded separately"
            if sequence < floor:
                if not again:
                    continue  # a repeated record
                if after is not None:  # a snapshot with a smaller number: the numbers have started again
                    floor = changes.floor = 0
            known = held.get(place)
            if known is None:
                if after is None:
                    continue
                before = None
            else:
                if 0 < sequence <= known.sequence and not again:
                    continue  # a repeated record
                before = known.hash
            now = None if after is None else HeldRow(after, sequence, offset)
            held[place] = changes.rows[place] = now
            if before != after:
                changes.add(place.leaf, tag, delta(before, after), keep=bool(tag) and ts_ms >= since)
                changed += 1
        self._store.commit(changes, now_ms)
        return changed

    def _truncate(self, read: _ParsedRecord, now_ms: int) -> None:
        changes = Changes(read.offset + 1, forgiven=read.sequence)
        if read.sequence < _ENDLESS:
            changes.floor = max(read.sequence, self._store.floor)
        for leaf, lost in self._store.remove_older(read.sequence).items():
            changes.add(leaf, read.tag, NOTHING - lost, keep=bool(read.tag) and read.ts_ms >= now_ms - WINDOW_MS)
        self._store.commit(changes, now_ms)

    def _read(self, record: LogRecord) -> _ParsedRecord:
        offset, key, value = record
        if value is None:
            if key == TRUNCATE_KEY:
                raise ValueError("a marker has no value")
            return _ParsedRecord(RowPlace(self._leaf(orjson.loads(key)), key), None, 0, offset, "", True, 0)
        envelope = orjson.loads(value)
        op, source = envelope["op"], envelope["source"]
        sequence = source.get("sequence")
        sequence = sequence if isinstance(sequence, int) else 0
        tag, ts_ms = self._tag_of(source), envelope.get("ts_ms") or 0
        if op == "t":
            return _ParsedRecord(None, None, sequence or _ENDLESS, offset, tag, False, ts_ms)
        place = RowPlace(self._leaf(orjson.loads(key)), key)
        if op == "d":
            return _ParsedRecord(place, None, sequence, offset, tag, False, ts_ms)
        if op not in ("c", "u", "r"):
            raise ValueError(f"op {op!r}")
        return _ParsedRecord(place, self._text.hash(envelope["after"]), sequence, offset, tag, op == "r", ts_ms)


def _sequence_of(record: LogRecord) -> int:
    """Return the sequence number of a record that does not fit the table's schema; 0 for a tombstone."""
    if record.value is None:
        return 0
    try:
        number = orjson.loads(record.value)["source"]["sequence"]
    except (ValueError, KeyError, TypeError):
        return _ENDLESS
    return number if isinstance(number, int) else _ENDLESS
