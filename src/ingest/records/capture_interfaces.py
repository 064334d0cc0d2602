"""Interfaces of capture: the source from which it reads changes, and the log to which it writes them."""

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
    """Progress of the capture of a source, committed with the records that it covers, or alone while the source is
    idle.

    `open` is the published part of a transaction that has not ended (`ingest.records.numbering`). `state` is further
    state by name, such as the progress of snapshots and repairs.
    """

    position: Position
    snapshot: Snapshot
    ts_ms: int
    open: Mapping[str, Any] | None = None
    state: Mapping[str, Any] = field(default_factory=dict)


class Record(NamedTuple):
    """One record to write to a topic.

    `value` None is a tombstone. `partition` None: the key's hash selects one; -1: write the record to every partition.
    """

    topic: str
    key: bytes
    value: bytes | None
    partition: int | None = None


EVERY_PARTITION = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered:
    """Committed state of a source: its newest checkpoint (None before the first), its schema history and table schemas.

    `behind` are topics of captured tables that lack records from before the checkpoint. Either the topic was deleted
    and created again, or the table was not captured for a time.
    """

    checkpoint: Checkpoint | None = None
    history: tuple[HistoryRecord, ...] = ()
    schemas: Mapping[TableId, TableSchema] = field(default_factory=dict)
    behind: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerTables:
    """The tables of a server at one moment, and the server's SQL dialect.

    `decides`: the log contains no DDL, so these tables replace the known ones when a session begins. `complete`: every
    existing table is in `catalog` or in `left_out`. `left_out` maps existing tables that cannot be captured to (reason,
    remedy). `kinds` is TABLE_TYPE and ENGINE of all relations, by (database, name), if the server has them. `reads`:
    tables can be read by SELECT during capture.
    """

    catalog: Catalog
    dialect: Dialect
    decides: bool = False
    kinds: Mapping[tuple[str, str], Kind] = field(default_factory=dict)
    reads: bool = True
    complete: bool = False
    left_out: Mapping[tuple[str, str], tuple[str, str]] = field(default_factory=dict)


# In a checkpoint's state while a capture reads log from before its first start: `later` are its postponed tables
# ([database, table]), and `snapshot` is whether all tables are read at the end.
FROM = "from"
# In a checkpoint's state while all tables are read again: `why` the log did not continue, and `since_ms`.
REREAD = "reread"


class PositionLost(Fatal):
    """The source's log does not contain the position: it was purged or reset, or it belongs to another server."""


class LogReplaced(PositionLost):
    """The log is another one than that which was read, or another client reads it: a person must decide."""


class LogDamaged(PositionLost):
    """A part of the source's log cannot be read. All tables are re-read to repair what that part may contain."""


class Stream(Protocol):
    """Endless iterator over a source's log events. `gtid_set` contains the transactions that ended; empty without
    GTIDs."""

    def __iter__(self) -> Iterator[LogEvent]: ...

    @property
    def gtid_set(self) -> str: ...

    @property
    def place(self) -> tuple[str, int]:
        """Return the file and the position in it up to which the log has been read. Valid between transactions.

        It may already name the begin of the next file.
        """

    @property
    def state(self) -> Mapping[str, Any]:
        """Return what a checkpoint needs to resume the stream, in addition to the position. Valid between
        transactions."""

    def reached(self, position: Position) -> bool:
        """Return whether everything before a position has been read."""


class SourceServer(Protocol):
    """A database server.

    Every method raises Retriable while it is unavailable, and Fatal if continuing would lose data.
    """

    def head(self) -> Position:
        """Return the log's current end; its `sequence` is 0. A snapshot that begins later contains everything before
        it."""

    def seen(self) -> ServerTables:
        """Return all tables of the captured databases as they are now.

        Raises UsageError if the server or a table cannot be captured.
        """

    def holds(self, position: Position) -> bool:
        """Return whether the server's log still contains everything from a position on."""

    def foreign_keys(self) -> ForeignKeys:
        """Return the foreign keys from or to tables of the captured databases, as they are now."""

    def release(self, position: Position) -> None:
        """Confirm to the server that records before a position are committed, so that it may free the log that it
        keeps."""

    def stream(self, checkpoint: Checkpoint, tables: Tables, *, busy: bool) -> AbstractContextManager[Stream]:
        """Open the stream of log events from a checkpoint's position on.

        The stream reads columns from `tables`; the caller applies schema changes to `tables` as it processes the
        events. `busy` requests the event CaughtUp many times a second, so that snapshots make progress between log
        events.
        """


class ChangeLog(Protocol):
    """An append-only log of records with atomic commits: a reader sees all of a commit or nothing of it.

    Every method raises Retriable when the log is unavailable or the commit must be aborted. `recover` on a new
    ChangeLog then returns what was really committed. Raises Fatal when another process has taken over this source.
    """

    def recover(self) -> Recovered:
        """Fence all earlier writers of this source, then return what they committed. Call it once, before anything
        else."""

    def append(self, record: Record) -> None:
        """Add a record to the next commit. May block while too many records are in flight."""

    def extend(self, records: Iterable[Record]) -> None:
        """Append several records."""

    def commit(self, checkpoint: Checkpoint) -> None:
        """Commit all appended records together with the checkpoint; read_committed consumers see all of them or
        none."""

    def kept(self) -> list[Mapping[str, Any]]:
        """Return all committed records of this source in the quarantine topic, in order."""

    def history(self) -> tuple[HistoryRecord, ...]:
        """Return the committed schema history of this source, in order, since the last `restate`."""

    def restate(self, records: Iterable[Record]) -> None:
        """Append records that contain the whole history. After the next commit, readers ignore all earlier ones."""

    def search(self, search: Search) -> None:
        """Pass all committed records of a search's topic to it, from its `begin` offsets on, in the background."""

    def abort(self) -> None:
        """Discard what was appended since the last commit. Never raises."""


class OpenLog(ChangeLog, Protocol):
    """A ChangeLog that also creates topics, and that its owner closes after the session."""

    def ensure_topic(self, name: str) -> None:
        """Announce the topic of a table's changes. It exists when a record of it is committed, or earlier."""

    def close(self) -> None:
        """Discard uncommitted records and drop the connections. Safe to call at any time."""


class SessionLog(OpenLog, Protocol):
    """A change log that also knows how many of its records Kafka has not confirmed yet."""

    def undelivered(self, seconds: float = 0.0) -> int:
        """Wait at most `seconds` for confirmations, and return the number of records that are not confirmed."""


class Watcher(Protocol):
    """Receives events about tables that are being read; `snapshots.Snapshots` implements it.

    `windows` are the keys that the log changed while a chunk is read, by table. `partial` are tables whose topic does
    not contain all rows.
    """

    windows: dict[TableId, set[bytes]]
    partial: set[TableId]

    def void(self, table: TableId) -> None:
        """Discard what is being read of a table, and read it again, because the table changed as a whole."""

    def restart(self, table: TableId) -> None:
        """Read a table again from its beginning, because its primary key changed."""

    def start(self, table: TableId, *, marker: int | None = None) -> None:
        """Read a table: a rename or a partition brought rows that the log does not contain.

        `marker` is as in `Snapshots.start`.
        """

    def gone(self, table: TableId) -> None:
        """Forget a table that was dropped."""
