"""Compute row hashes and leaf digests of one partition from the records of a change topic.

Each key has the state of its last record. So repeated snapshots, deletes of missing rows and repeated records count
once. After a rewind, capture publishes the same sequence numbers again. Such a record is skipped: its number is not
greater than that of its row, or it is smaller than that of the newest marker. TRUNCATE, and the marker at the end of a
repeated snapshot, remove rows with smaller numbers. A tombstone after its delete changes nothing. If compaction has
removed the delete, the tombstone removes the row.

Each change of a leaf is stored for some time with its position at the source (`TaggedChange`). So the digest of a leaf
can be computed as of any position within that time (`ingest.ledger.places`). A store commits the offset together with
the data, so it resumes exactly.

The ledger also checks what capture promises about exact changes (`ingest.records.exact_phases`): `before` is the last
image of the row. It checks the changes of the last `checked_ms`; of older ones, compaction may have removed the last
image.
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
WINDOW_MS = 600_000  # milliseconds for which changes are stored with their positions


class LogRecord(NamedTuple):
    """One committed record of a partition; the value of a tombstone is None."""

    offset: int
    key: bytes
    value: bytes | None


class HeldRow(NamedTuple):
    """Stored state of a row: hash of its values, and sequence number and offset of its last record."""

    hash: int
    sequence: int
    offset: int


class RowPlace(NamedTuple):
    """Key of a row in the ledger: the number of its leaf, and its record key."""

    leaf: int
    key: bytes


class Broken(NamedTuple):
    """Changes that are marked as exact, although their `before` is not the last image of the row: their number, and
    the sequence number and offset of the newest one."""

    number: int
    sequence: int
    offset: int


class TaggedChange(NamedTuple):
    """Sum of all changes of one leaf at one source position (`tag`)."""

    leaf: int
    tag: str
    change: Digest


@dataclass(slots=True)
class Changes:
    """Changes that a store commits in one transaction, with the next offset.

    `rows` are new states (None: deleted). `leaves` are digests to add by leaf, `tagged` the same by leaf and source
    position. `unread` more records could not be read; `unread_at` is the greatest sequence number of these. Unreadable
    records with numbers below `forgiven` no longer count, because a marker removed their rows. The same applies to
    `broken` changes. `floor` and `deleted` are as in `RowStore`; None leaves `floor` as it is.
    """

    next_offset: int
    rows: dict[RowPlace, HeldRow | None] = field(default_factory=dict)
    leaves: dict[int, Digest] = field(default_factory=dict)
    tagged: dict[tuple[int, str], Digest] = field(default_factory=dict)
    unread: int = 0
    unread_at: int = 0
    broken: Broken | None = None
    forgiven: int = 0
    floor: int | None = None
    deleted: bytes | None = None

    def add(self, leaf: int, tag: str, change: Digest, *, keep: bool) -> None:
        """Add a digest to a leaf. `keep`: also store it by source position."""
        known = self.leaves.get(leaf)
        self.leaves[leaf] = change if known is None else known + change
        if keep:
            known = self.tagged.get((leaf, tag))
            self.tagged[leaf, tag] = change if known is None else known + change


class RowStore(Protocol):
    """Stored state of one partition of a change topic."""

    @property
    def floor(self) -> int:
        """Return the sequence number of the newest marker: rows with smaller numbers are gone, or were read again."""

    @property
    def deleted(self) -> bytes | None:
        """Return the key of the last record if that was a delete, whose tombstone follows; otherwise None."""

    def held(self, places: Iterable[RowPlace]) -> dict[RowPlace, HeldRow]:
        """Return the stored rows with these keys. Rows that are not stored are missing in the result."""

    def remove_older(self, sequence: int) -> Mapping[int, Digest]:
        """Remove all rows with smaller sequence numbers, as a part of the next commit. Returns their digests by
        leaf."""

    def commit(self, changes: Changes, now_ms: int) -> None:
        """Commit all changes and the next offset. Remove tagged changes that are older than `WINDOW_MS` at `now_ms`."""


class _ParsedRecord(NamedTuple):
    """A record that was parsed: the new hash of a row, or a marker (`place` None), which removes rows of smaller
    numbers."""

    place: RowPlace | None
    hash: int | None
    sequence: int
    offset: int
    tag: str
    again: bool  # a snapshot row or a tombstone, which applies whatever its number is
    ts_ms: int
    exact: bool = False  # the change claims that `before` is the row's last image
    before: int | None = None  # the hash of this image; set if `exact`


class Fold:
    """Applies the records of one partition to its store. Records may be repeated; each counts exactly once."""

    def __init__(
        self,
        store: RowStore,
        covered: CoveredColumns,
        grid: Grid,
        tag_of: Callable[[Mapping[str, Any]], str],
        checked_ms: int = WINDOW_MS,
    ) -> None:
        self._store, self._tag_of, self._checked_ms = store, tag_of, checked_ms
        self._text, self._leaf = RowText(covered.forms), LeafOf(grid, covered)

    def fold(self, records: Sequence[LogRecord], next_offset: int, now_ms: int) -> int:
        """Apply records in order, and commit them with `next_offset`. Returns the number of records that changed a
        row."""
        changed = 0
        batch: list[_ParsedRecord] = []
        unread, deleted = list[int](), self._store.deleted
        for record in records:
            tombstone = record.value is None and record.key == deleted
            deleted = None
            if tombstone:
                continue
            try:
                read = self._read(record, now_ms - self._checked_ms)
            # not an envelope of this table: count it, because the table cannot be compared
            except (ValueError, KeyError, TypeError):
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
        for place, after, sequence, offset, tag, again, ts_ms, exact, claimed in batch:
            assert place is not None, "markers are folded separately"
            if sequence < floor:
                if not again:
                    continue  # a repeated record
                # a snapshot row with a smaller number: the capture was started again from the beginning
                if after is not None:
                    floor = changes.floor = 0
            known = held.get(place)
            if known is not None and 0 < sequence <= known.sequence and not again:
                continue  # a repeated record
            before = None if known is None else known.hash
            if exact and claimed != before:
                changes.broken = Broken(changes.broken.number + 1 if changes.broken else 1, sequence, offset)
            if known is None and after is None:
                continue
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

    def _read(self, record: LogRecord, checked_since: int) -> _ParsedRecord:
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
        if op not in ("c", "u", "r", "d"):
            raise ValueError(f"op {op!r}")
        place = RowPlace(self._leaf(orjson.loads(key)), key)
        after = None if op == "d" else self._text.hash(envelope["after"])
        exact = bool(source.get("exact")) and ts_ms >= checked_since
        claimed = envelope["before"] if exact else None
        before = None if claimed is None else self._text.hash(claimed)
        return _ParsedRecord(place, after, sequence, offset, tag, op == "r", ts_ms, exact, before)


def _sequence_of(record: LogRecord) -> int:
    """Return the sequence number of a record that could not be read: 0 for a tombstone, `_ENDLESS` if it has none."""
    if record.value is None:
        return 0
    try:
        number = orjson.loads(record.value)["source"]["sequence"]
    except (ValueError, KeyError, TypeError):
        return _ENDLESS
    return number if isinstance(number, int) else _ENDLESS
