"""Divide a table's changes into cuts. A cut has one schema, a limited number of rows, and optionally one hour."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from cdc.model.event import ChangeEvent
from cdc.model.schema import TableSchema
from ingest.changes.feed_interfaces import SchemaVersions
from ingest.changes.merging import ChangeBatch, Offsets

_HOUR_MS = 3_600_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportCut:
    """Changes of one schema, in order; `next` are the offsets at which reading continues.

    `hour` is the hour (since 1970) of all changes; None if cuts are not by hour.
    """

    schema: TableSchema
    events: tuple[ChangeEvent, ...]
    next: Offsets
    hour: int | None = None


@dataclass(slots=True, kw_only=True)
class ExportCutter:
    """Divides batches of changes into cuts of at most `rows` changes, and of one hour each if `hourly`.

    Each change is in exactly one cut, wherever the export resumes: a cut ends between two changes, and the next one
    begins there.
    """

    rows: int
    hourly: bool
    batches: int = 64  # maximum number of batches in memory, about 1 MiB each
    _events: list[ChangeEvent] = field(default_factory=list)
    _schema: TableSchema | None = None
    _hour: int | None = None
    _next: dict[int, int] = field(default_factory=dict)
    _taken: int = 0

    def take(self, batch: ChangeBatch, versions: SchemaVersions, starts: Offsets) -> Iterator[ExportCut]:
        """Add a batch that was read from the offsets `starts`, and yield the cuts that it completes."""
        self._next = dict(starts)
        for change in batch.changes:
            schema = versions.at(change.event.source.sequence)
            hour = change.event.source.ts_ms // _HOUR_MS if self.hourly else None
            if self._events and (self._schema != schema or self._hour != hour or len(self._events) >= self.rows):
                yield from self.rest()
            self._schema, self._hour = schema, hour
            self._events.append(change.event)
            self._next[change.partition] = change.offset + 1
        self._next = dict(batch.next)
        self._taken += 1
        if len(self._events) >= self.rows or self._taken >= self.batches:
            yield from self.rest()

    def rest(self) -> Iterator[ExportCut]:
        """Yield the incomplete last cut, if it contains changes."""
        self._taken = 0
        if self._events and self._schema is not None:
            events, self._events = tuple(self._events), []
            yield ExportCut(schema=self._schema, events=events, next=dict(self._next), hour=self._hour)
