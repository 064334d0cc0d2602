"""The two ends of capture: where changes come from and where they go.

Today a MySQL server and Kafka; the binlog library replaces the one and the gateway the other behind these protocols.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from cdc.event import Position
from cdc.schema import TableId, TableSchema
from ingest.agent.facts import Fact, Image

Snapshot = Literal["running", "done"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """How far a source has been captured; committed with the records that it covers, or alone when idle.

    `ts_ms` is the commit time of the newest change. While `snapshot` is "running", `position` is the low watermark:
    the log is to be read from there once the snapshot is done, whichever attempt completes it. `state` is what else a
    kind of capture must remember, as JSON; empty where there is nothing.
    """

    position: Position
    snapshot: Snapshot
    ts_ms: int
    state: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One record of a topic; `value` None is a tombstone."""

    topic: str
    key: bytes
    value: bytes | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered:
    """What the log holds of a source: its newest checkpoint (None before the first) and its newest table schemas."""

    checkpoint: Checkpoint | None = None
    schemas: Mapping[TableId, TableSchema] = field(default_factory=dict)


class Source(Protocol):
    """A database server. Every method raises Retriable when the server is away, Fatal when going on would lose data."""

    def head(self) -> Position:
        """Where the log ends now; all of it up to there is visible to a snapshot that begins later. `sequence` 0."""

    def schemas(self, known: Mapping[TableId, TableSchema]) -> Mapping[TableId, TableSchema]:
        """Schemas of the captured tables now: the known one where it still holds, else one of the next version."""

    def snapshot(
        self, schemas: Mapping[TableId, TableSchema]
    ) -> AbstractContextManager[Iterator[tuple[TableSchema, list[Image]]]]:
        """All rows of the captured tables as of one moment, in pages; without locks and in bounded memory."""

    def stream(
        self, position: Position, schemas: Mapping[TableId, TableSchema]
    ) -> AbstractContextManager[Iterator[Fact]]:
        """Facts from a position on, never ending; `schemas` are those that hold there."""


class ChangeLog(Protocol):
    """An append-only log of records with atomic commits: a reader sees all of a commit or nothing of it.

    Every method raises Retriable when the log is away or the commit must be given up: `recover` on a new ChangeLog
    then tells what really was committed. Fatal when another process has taken over this source.
    """

    def recover(self) -> Recovered:
        """Lock out every predecessor, then tell what is committed. Called once, before anything else."""

    def append(self, record: Record) -> None:
        """Add a record to the commit in the making; may block while too much is in flight."""

    def commit(self, checkpoint: Checkpoint) -> None:
        """Make everything appended since the last commit visible, together with the checkpoint."""

    def abort(self) -> None:
        """Give up what was appended since the last commit; never raises."""
