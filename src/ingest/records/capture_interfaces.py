"""Interfaces at both ends of capture: the source that changes come from, and the log that they go to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol

from cdc.model.errors import Fatal
from cdc.model.event import Position
from cdc.model.history import Record as HistoryRecord
from cdc.model.schema import TableId, TableSchema
from ingest.ddl.catalog import Catalog
from ingest.ddl.dialect import Dialect
from ingest.events.foreign_keys import ForeignKeys
from ingest.events.left_out import Kind
from ingest.events.log_events import LogEvent
from ingest.events.tables import Tables
from ingest.records.findings import Search

Snapshot = Literal["running", "done"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """Progress of the capture of a source. Committed with the records that it covers, or alone when idle."""

    position: Position
    snapshot: Snapshot
    ts_ms: int
    open: Mapping[str, Any] | None = None
    state: Mapping[str, Any] = field(default_factory=dict)


class Record(NamedTuple):
    """One record of a topic.

    `value` None is a tombstone. `partition` None means the key decides, -1 every partition.
    """

    topic: str
    key: bytes
    value: bytes | None
    partition: int | None = None


EVERY_PARTITION = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered:
    """State of a source in the log: its newest checkpoint (None before the first), its schema history, and the newest
    published table schemas.

    `behind`: topics of captured tables that lack records covered by the checkpoint because they were deleted and
    created again, or that the checkpoint does not list because their tables were not captured at the time.
    """

    checkpoint: Checkpoint | None = None
    history: tuple[HistoryRecord, ...] = ()
    schemas: Mapping[TableId, TableSchema] = field(default_factory=dict)
    behind: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerTables:
    """Snapshot of a server's tables and of its SQL dialect at one moment.

    `decides`: the log has no statements, so these tables are authoritative where a session begins. `complete`: a table
    neither in `catalog` nor in `left_out` no longer exists. `left_out` maps existing tables that are not captured to
    (reason, remedy). `kinds`: TABLE_TYPE and ENGINE of all relations, by (database, name), if the server has them.
    `reads`: tables can be read during capture.
    """

    catalog: Catalog
    dialect: Dialect
    decides: bool = False
    kinds: Mapping[tuple[str, str], Kind] = field(default_factory=dict)
    reads: bool = True
    complete: bool = False
    left_out: Mapping[tuple[str, str], tuple[str, str]] = field(default_factory=dict)


class PositionLost(Fatal):
    """The source's log does not continue from the position: it was purged or reset, or it belongs to another server."""


class LogDamaged(PositionLost):
    """A part of the source's log cannot be read. All tables are re-read to repair what that part may contain."""


class Stream(Protocol):
    """Endless stream of a source's log events. `gtid_set`: all transactions that ended, empty without GTIDs."""

    def __iter__(self) -> Iterator[LogEvent]: ...

    @property
    def gtid_set(self) -> str: ...

    @property
    def place(self) -> tuple[str, int]:
        """Return the file and position after what was read.

        Valid between transactions; it may move on to the next file.
        """

    @property
    def state(self) -> Mapping[str, Any]:
        """Return further state of the read position for a checkpoint. Valid between transactions."""

    def reached(self, position: Position) -> bool:
        """Return whether everything up to a position has been read."""


class SourceServer(Protocol):
    """A database server.

    Every method raises Retriable while it is unavailable, and Fatal if continuing would lose data.
    """

    def head(self) -> Position:
        """Return the log's current end. A snapshot that begins later sees everything up to it. Its `sequence` is 0."""

    def seen(self) -> ServerTables:
        """Return all tables of the captured databases now.

        Raises UsageError if the server or a table cannot be captured.
        """

    def holds(self, position: Position) -> bool:
        """Return whether the log can still be read from a position on."""

    def foreign_keys(self) -> ForeignKeys:
        """Return the foreign keys to or from tables of the captured databases now."""

    def release(self, position: Position) -> None:
        """Confirm that records up to a position are committed.

        A server that retains its log for this capture may free it.
        """

    def stream(self, checkpoint: Checkpoint, tables: Tables, *, busy: bool) -> AbstractContextManager[Stream]:
        """Open the stream of log events from a checkpoint's position on.

        The stream asks `tables` for columns; the reader of the events keeps `tables` up to date. `busy` requests
        CaughtUp many times a second, so that snapshots make progress between log events.
        """


class ChangeLog(Protocol):
    """An append-only log of records with atomic commits: a reader sees all of a commit or nothing of it.

    Every method raises Retriable when the log is unavailable or the commit must be aborted. `recover` on a new
    ChangeLog then returns what was really committed. Raises Fatal when another process has taken over this source.
    """

    def recover(self) -> Recovered:
        """Fence every predecessor, then return what is committed. Called once, before anything else."""

    def append(self, record: Record) -> None:
        """Add a record to the next commit. May block while too much is in flight."""

    def extend(self, records: Iterable[Record]) -> None:
        """Add many records."""

    def commit(self, checkpoint: Checkpoint) -> None:
        """Make everything appended since the last commit visible, together with the checkpoint."""

    def kept(self) -> list[Mapping[str, Any]]:
        """Return everything committed in the quarantine of this source, in order."""

    def history(self) -> tuple[HistoryRecord, ...]:
        """Return the committed schema history of this source since its last restatement, in order."""

    def restate(self, records: Iterable[Record]) -> None:
        """Add records that hold the whole history. After the next commit, no earlier ones are read."""

    def search(self, search: Search) -> None:
        """Start to show a search everything committed in its topic from its begin offsets on. Does not block."""

    def abort(self) -> None:
        """Discard what was appended since the last commit. Never raises."""


class OpenLog(ChangeLog, Protocol):
    """A ChangeLog that the session owns: it creates topics, and is closed after the session."""

    def ensure_topic(self, name: str) -> None:
        """Create the topic of a table's changes if it does not exist."""

    def close(self) -> None:
        """Discard uncommitted records and drop the connections. Safe to call at any time."""


class Watcher(Protocol):
    """Is notified of what the log does to tables that are being read; implemented by `snapshots.Snapshots`."""

    windows: dict[TableId, set[bytes]]
    partial: set[TableId]

    def void(self, table: TableId) -> None:
        """Handle a change of the table as a whole."""

    def restart(self, table: TableId) -> None:
        """Handle a change of the table's key."""

    def start(self, table: TableId, *, marker: int | None = None) -> None:
        """Read the table: rows arrived that the log does not contain, by a rename or a partition."""

    def gone(self, table: TableId) -> None:
        """Handle the drop of the table."""
