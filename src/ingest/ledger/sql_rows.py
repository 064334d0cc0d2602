"""Store of one partition's ledger in an SQLite file; `verify` may read it while the ledger process writes.

A commit is one transaction that includes the offset. After a crash of the process or the machine, the file contains a
complete commit, but perhaps not the last one. The records after it are then applied again.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from cdc.merkle.tree import NOTHING, Digest, Leaves, delta
from cdc.model.errors import DiskFull, Fatal
from ingest.ledger.fold import WINDOW_MS, Broken, Changes, HeldRow, RowPlace, TaggedChange

_TABLES = """
CREATE TABLE IF NOT EXISTS held (leaf INTEGER, key BLOB, hash BLOB, sequence INTEGER, at INTEGER,
    PRIMARY KEY (leaf, key)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS leaves (leaf INTEGER PRIMARY KEY, rows INTEGER, bits BLOB);
CREATE TABLE IF NOT EXISTS tagged (ms INTEGER, leaf INTEGER, tag TEXT, number INTEGER, rows INTEGER, bits BLOB,
    PRIMARY KEY (ms, leaf, tag, number)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value) WITHOUT ROWID;
"""
_BITS = 32  # bytes of a stored digest
_LAST = 2**62  # greater than every leaf number
_CACHE_KIB = 32_768
_LOG_PAGES = 8_192  # pages of SQLite's write-ahead log before a checkpoint: 32 MiB
_TIMEOUT = 30.0  # seconds to wait for another process's transaction


class SqlRows:
    """SQLite store; implements `fold.RowStore` and `ledger.PartitionStore`.

    Not thread-safe. Raises Fatal for an invalid file.
    """

    def __init__(self, file: Path, shape: str, *, writes: bool = True) -> None:
        """Open or create the file. If its digests have another `shape`, it is emptied.

        With `writes` False (another process writes it), a file of another shape only counts as empty.
        """
        self._file, self._writes, self._shape, self._next, self._number = file, writes, shape, 0, 0
        with _sqlite_errors(file):
            self._db = sqlite3.connect(file, timeout=_TIMEOUT, isolation_level=None, check_same_thread=False)
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = NORMAL")
            self._db.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
            self._db.execute(f"PRAGMA wal_autocheckpoint = {_LOG_PAGES}")
            self._db.executescript(_TABLES)
            known = self._value("shape")
            # the file is treated as empty: its digests have another shape
            self.again = writes and known is not None and known != shape
            if writes and known != shape:
                self.begin_again(shape)
            self._next, self._truncation_point = int(self._value("next") or 0), int(self._value("floor") or 0)
            found = self._db.execute("SELECT value FROM facts WHERE name = 'deleted'").fetchone()
            self._deleted: bytes | None = found[0] if found else None

    def begin_again(self, shape: str) -> None:
        """Delete everything. The partition is read again from the beginning."""
        self._shape, self._next, self._truncation_point, self._deleted = shape, 0, 0, None
        if not self._writes:
            return
        with _sqlite_errors(self._file):
            self._begin()
            for table in ("held", "leaves", "tagged", "facts"):
                self._db.execute(f"DELETE FROM {table}")
            self._db.execute(
                "INSERT INTO facts VALUES ('shape', ?), ('next', 0), ('unread', 0), ('floor', 0), ('deleted', NULL)",
                (shape,),
            )
            self._db.execute("COMMIT")

    @property
    def next_offset(self) -> int:
        """Return the offset to read next; 0 if nothing was read."""
        if not self._writes:
            self._next = int(self._value("next") or 0) if self._value("shape") == self._shape else 0
        return self._next

    @property
    def floor(self) -> int:
        """Return the sequence number of the newest marker: rows with smaller numbers are gone, or were read again."""
        return self._truncation_point

    @property
    def deleted(self) -> bytes | None:
        """Return the key of the last record if that was a delete, whose tombstone follows; otherwise None."""
        return self._deleted

    @property
    def unread(self) -> int:
        """Return the number of records that were not envelopes of this table."""
        return int(self._value("unread") or 0)

    @property
    def broken(self) -> Broken | None:
        """Return the changes that are marked as exact and are not; None if there are none."""
        if count := int(self._value("broken") or 0):
            return Broken(count, int(self._value("broken_at") or 0), int(self._value("broken_offset") or 0))
        return None

    @property
    def rows(self) -> int:
        """Return the number of stored rows."""
        return int(self._db.execute("SELECT coalesce(sum(rows), 0) FROM leaves").fetchone()[0])

    def held(self, places: Iterable[RowPlace]) -> dict[RowPlace, HeldRow]:
        """Implements `RowStore.held`. It begins the transaction, because otherwise each read would be one of its
        own."""
        self._begin()
        return self._at(places)

    def remove_older(self, sequence: int) -> Mapping[int, Digest]:
        """Implements `RowStore.remove_older`. The transaction stays open until `commit`. Raises DiskFull."""
        lost: dict[int, Digest] = {}
        with _sqlite_errors(self._file):
            self._begin()
            for leaf, bits in self._db.execute("SELECT leaf, hash FROM held WHERE sequence < ?", (sequence,)):
                lost[leaf] = lost.get(leaf, NOTHING) + delta(None, int.from_bytes(bits, "big"))
            self._db.execute("DELETE FROM held WHERE sequence < ?", (sequence,))
        return lost

    def commit(self, changes: Changes, now_ms: int) -> None:
        """Commit all changes and the next offset. Implements `RowStore`. Raises DiskFull; nothing is committed then."""
        with _sqlite_errors(self._file):
            self._commit(changes, now_ms)
        self._deleted = changes.deleted
        self._next, self._truncation_point = (
            changes.next_offset,
            self._truncation_point if changes.floor is None else changes.floor,
        )

    def _commit(self, changes: Changes, now_ms: int) -> None:
        self._begin()
        many = self._db.executemany
        gone = [place for place, held in changes.rows.items() if held is None]
        kept = [
            (place.leaf, place.key, held.hash.to_bytes(16, "big"), held.sequence, held.offset)
            for place, held in changes.rows.items()
            if held is not None
        ]
        kept.sort()  # sorted, so that rows of one page are written together
        many("INSERT OR REPLACE INTO held VALUES (?, ?, ?, ?, ?)", kept)
        many("DELETE FROM held WHERE leaf = ? AND key = ?", gone)
        self._add_to_leaves(changes.leaves)
        if changes.tagged:
            self._number += 1
            tagged = (
                (now_ms, leaf, tag, self._number, change.count, change.bits.to_bytes(_BITS, "big"))
                for (leaf, tag), change in changes.tagged.items()
            )
            many("INSERT INTO tagged VALUES (?, ?, ?, ?, ?, ?)", tagged)
        self._db.execute("DELETE FROM tagged WHERE ms < ?", (now_ms - WINDOW_MS,))
        self._db.execute("UPDATE facts SET value = ? WHERE name = 'next'", (changes.next_offset,))
        if changes.unread:
            self._db.execute("UPDATE facts SET value = value + ? WHERE name = 'unread'", (changes.unread,))
            newest = max(changes.unread_at, int(self._value("unread_at") or 0))
            self._db.execute("INSERT OR REPLACE INTO facts VALUES ('unread_at', ?)", (newest,))
        if changes.broken:
            known = self.broken
            found = changes.broken._replace(number=changes.broken.number + (known.number if known else 0))
            facts = zip(("broken", "broken_at", "broken_offset"), found, strict=True)
            many("INSERT OR REPLACE INTO facts VALUES (?, ?)", facts)
        for count, newest_at in (("unread", "unread_at"), ("broken", "broken_at")):
            youngest = self._value(newest_at)
            if changes.forgiven and youngest is not None and int(youngest) < changes.forgiven:
                self._db.execute("UPDATE facts SET value = 0 WHERE name IN (?, ?)", (count, newest_at))
        if changes.floor is not None:
            self._db.execute("UPDATE facts SET value = ? WHERE name = 'floor'", (changes.floor,))
        if changes.deleted != self._deleted:
            self._db.execute("UPDATE facts SET value = ? WHERE name = 'deleted'", (changes.deleted,))
        self._db.execute("COMMIT")

    def seen(self, next_offset: int) -> None:
        """Set the next offset; before it, there were only Kafka's commit markers."""
        if self._writes and next_offset > self._next:
            self.commit(Changes(next_offset, deleted=self._deleted), 0)

    def leaves(self, first: int, last: int) -> tuple[Leaves, list[TaggedChange]]:
        """Return the digests of the leaves `first` to `last` and their recent changes, in one transaction."""
        with self._read_transaction():
            found = Leaves(
                {
                    leaf: Digest(rows, int.from_bytes(bits, "big"))
                    for leaf, rows, bits in self._db.execute(
                        "SELECT leaf, rows, bits FROM leaves WHERE leaf BETWEEN ? AND ?", (first, last)
                    )
                }
            )
            return found, self._tagged(first, last)

    def rows_of(self, leaf: int) -> tuple[list[tuple[bytes, HeldRow]], list[TaggedChange]]:
        """Return the rows of a leaf as (record key, row) and its recent changes, in one transaction."""
        with self._read_transaction():
            found = self._db.execute("SELECT key, hash, sequence, at FROM held WHERE leaf = ?", (leaf,)).fetchall()
            tagged = self._tagged(leaf, leaf)
        return [(key, HeldRow(int.from_bytes(bits, "big"), sequence, at)) for key, bits, sequence, at in found], tagged

    def rows_at(self, places: Iterable[RowPlace]) -> tuple[dict[RowPlace, HeldRow], list[TaggedChange]]:
        """Return the stored rows with these keys and the recent changes of all leaves, in one transaction."""
        with self._read_transaction():
            return self._at(places), self._tagged(0, _LAST)

    def _at(self, places: Iterable[RowPlace]) -> dict[RowPlace, HeldRow]:
        found, execute = dict[RowPlace, HeldRow](), self._db.execute
        for place in set(places):
            row = execute("SELECT hash, sequence, at FROM held WHERE leaf = ? AND key = ?", place).fetchone()
            if row is not None:
                found[place] = HeldRow(int.from_bytes(row[0], "big"), row[1], row[2])
        return found

    def _tagged(self, first: int, last: int) -> list[TaggedChange]:
        return [
            TaggedChange(leaf, tag, Digest(rows, int.from_bytes(bits, "big")))
            for leaf, tag, rows, bits in self._db.execute(
                "SELECT leaf, tag, rows, bits FROM tagged WHERE leaf BETWEEN ? AND ?", (first, last)
            )
        ]

    @contextmanager
    def _read_transaction(self) -> Iterator[None]:
        """Run the reads of a block in one transaction, so that they see the same commit."""
        self._db.execute("BEGIN")
        try:
            yield
        finally:
            self._db.execute("COMMIT")

    def close(self) -> None:
        """Close the file. Uncommitted changes are lost."""
        self._db.close()

    def _add_to_leaves(self, leaves: Mapping[int, Digest]) -> None:
        """Add digests to stored leaves. A leaf without rows is removed."""
        now = []
        for leaf, change in leaves.items():
            row = self._db.execute("SELECT rows, bits FROM leaves WHERE leaf = ?", (leaf,)).fetchone()
            found = change if row is None else Digest(row[0], int.from_bytes(row[1], "big")) + change
            now.append((leaf, found.count, found.bits.to_bytes(_BITS, "big")))
        self._db.executemany("INSERT OR REPLACE INTO leaves VALUES (?, ?, ?)", [one for one in now if one[1]])
        self._db.executemany("DELETE FROM leaves WHERE leaf = ?", [one[:1] for one in now if not one[1]])

    def _begin(self) -> None:
        if not self._db.in_transaction:
            self._db.execute("BEGIN IMMEDIATE")

    def _value(self, name: str) -> str | int | None:
        row = self._db.execute("SELECT value FROM facts WHERE name = ?", (name,)).fetchone()
        return None if row is None else row[0]


class _sqlite_errors:
    """Turn SQLite's errors in the block into DiskFull or Fatal; messages name the file."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, sqlite3.Error) and getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL:
            raise DiskFull(self._file) from error
        if isinstance(error, sqlite3.Error):
            remedy = "remove the file: the ledger then reads the topic again"
            raise Fatal(f"{self._file}: {error}", remedy) from error
