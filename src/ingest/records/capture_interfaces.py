"""The two ends of capture: where changes come from and where they go."""

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
    """How far a source has been captured; committed with the records that it covers, or alone when idle.

    `ts_ms` is the commit time of the newest change. `state` is what else must be remembered, as JSON. While `snapshot`
    is "running", `position` is the low watermark: the log is to be read from there once the snapshot is done, whichever
    attempt completes it. `open` counts what was published of the source transaction at `position` (None: nothing): a
    huge one takes several commits.
    """

    position: Position
    snapshot: Snapshot
    ts_ms: int
    open: Mapping[str, Any] | None = None
    state: Mapping[str, Any] = field(default_factory=dict)


class Record(NamedTuple):
    """One record of a topic; `value` None is a tombstone, `partition` None leaves it to the key, -1 means every one."""

    topic: str
    key: bytes
    value: bytes | None
    partition: int | None = None


EVERY_PARTITION = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered:
    """What the log holds of a source: its newest checkpoint (None before the first), its schema history, and the newest
    table schemas that were published.

    `behind` are the topics of captured tables that lack what the checkpoint covers (they were deleted and made anew),
    or of which it does not know (their tables were not captured for a time).
    """

    checkpoint: Checkpoint | None = None
    history: tuple[HistoryRecord, ...] = ()
    schemas: Mapping[TableId, TableSchema] = field(default_factory=dict)
    behind: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What a server shows at a moment: its tables, and what its statements mean.

    `decides`: its log has no statements, so what it shows holds where a session begins. `complete`: a table
    that it neither shows nor leaves out is gone. `left_out` maps tables that are there and are not captured to why, and
    the remedy. `kinds` are TABLE_TYPE and ENGINE of all its relations, by database and name, where it has such.
    `reads`: tables can be read beside the log.
    """

    catalog: Catalog
    dialect: Dialect
    decides: bool = False
    kinds: Mapping[tuple[str, str], Kind] = field(default_factory=dict)
    reads: bool = True
    complete: bool = False
    left_out: Mapping[tuple[str, str], tuple[str, str]] = field(default_factory=dict)


class PositionLost(Fatal):
    """The source's log does not continue the position: it was purged or reset, or it is another server's."""


class LogDamaged(PositionLost):
    """A part of the source's log cannot be read. What it may hold is repaired: all tables are read again."""


class Stream(Protocol):
    """Facts of a source's log, never ending; `gtid_set` are all transactions that ended, empty without GTIDs."""

    def __iter__(self) -> Iterator[LogEvent]: ...

    @property
    def gtid_set(self) -> str: ...

    @property
    def place(self) -> tuple[str, int]:
        """File and position behind what was read, to be asked between transactions; a file's end may be passed."""

    @property
    def state(self) -> Mapping[str, Any]:
        """What else a checkpoint must remember of how far it was read, to be asked between transactions."""

    def reached(self, position: Position) -> bool:
        """Whether all up to a position has been read."""


class SourceServer(Protocol):
    """A database server. Every method raises Retriable when the server is away, Fatal when going on would lose data."""

    def head(self) -> Position:
        """Where the log ends now; all of it up to there is visible to a snapshot that begins later. `sequence` 0."""

    def seen(self) -> Seen:
        """All tables of the captured databases now; UsageError when the server or a table cannot be captured."""

    def holds(self, position: Position) -> bool:
        """Whether the log can still be read from a position on."""

    def foreign_keys(self) -> ForeignKeys:
        """The foreign keys to or from tables of the captured databases now."""

    def release(self, position: Position) -> None:
        """The log holds all up to here: a server that keeps its own for us alone may let it go."""

    def stream(self, checkpoint: Checkpoint, tables: Tables, *, busy: bool) -> AbstractContextManager[Stream]:
        """Facts from a checkpoint's position on; `tables` tells, and is told by the reader of the facts, what the
        columns are. `busy` asks for CaughtUp many times a second, for snapshots to go on meanwhile."""


class ChangeLog(Protocol):
    """An append-only log of records with atomic commits: a reader sees all of a commit or nothing of it.

    Every method raises Retriable when the log is away or the commit must be given up: `recover` on a new ChangeLog
    then tells what really was committed. Fatal when another process has taken over this source.
    """

    def recover(self) -> Recovered:
        """Lock out every predecessor, then tell what is committed. Called once, before anything else."""

    def append(self, record: Record) -> None:
        """Add a record to the commit in the making; may block while too much is in flight."""

    def extend(self, records: Iterable[Record]) -> None:
        """Add many records."""

    def commit(self, checkpoint: Checkpoint) -> None:
        """Make everything appended since the last commit visible, together with the checkpoint."""

    def kept(self) -> list[Mapping[str, Any]]:
        """All that is committed in the quarantine of this source, in order."""

    def history(self) -> tuple[HistoryRecord, ...]:
        """All that is committed of this source's schema history, in order, since it was last restated."""

    def restate(self, records: Iterable[Record]) -> None:
        """Add records that hold the whole history: with the next commit, nothing before them is read any more."""

    def search(self, search: Search) -> None:
        """Begin to show a search all that is committed in its topic from where it begins, beside everything else."""

    def abort(self) -> None:
        """Give up what was appended since the last commit; never raises."""


class OpenLog(ChangeLog, Protocol):
    """A ChangeLog as whoever begins a session has it: it makes topics, and is closed behind the session."""

    def ensure_topic(self, name: str) -> None:
        """Have the topic of a table's changes, which may have appeared only now."""

    def close(self) -> None:
        """Give up what is uncommitted and forget the connections; safe to call at any time."""


class Watcher(Protocol):
    """Who must know what the log does to tables while they are being read: `snapshots.Snapshots`."""

    windows: dict[TableId, set[bytes]]
    partial: set[TableId]

    def void(self, table: TableId) -> None:
        """The table was changed as a whole."""

    def restart(self, table: TableId) -> None:
        """The table has another key."""

    def start(self, table: TableId, *, marker: int | None = None) -> None:
        """What the table holds came without the log's telling, by a name or a partition: read it."""

    def gone(self, table: TableId) -> None:
        """The table is no more."""
