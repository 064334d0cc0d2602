"""Interfaces of the log for readers of changes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from cdc.model.event import Position
from cdc.model.schema import TableId, TableSchema
from ingest.changes.merging import ChangeBatch, Offsets


@dataclass(frozen=True, slots=True)
class SchemaVersions:
    """The schemas of a table's rows, each from a sequence number on, oldest first."""

    found: tuple[tuple[int, TableSchema], ...]

    def at(self, sequence: int) -> TableSchema:
        """Return the schema of a change with a sequence number; the oldest one if the change is older than all."""
        last = self.found[0][1]
        for number, schema in self.found:
            if number > sequence:
                break
            last = schema
        return last


class ChangeTables(Protocol):
    """The tables of a topology in the log. Methods block; any thread may call them.

    Every method raises Retriable while the log is unavailable.
    """

    def tables(self) -> tuple[TableId, ...]:
        """Return the tables with committed changes."""

    def begins(self, table: TableId) -> Offsets:
        """Return the first retained offset of each partition."""

    def released(self, table: TableId) -> Offsets:
        """Return the end of each partition after the last complete commit of the source."""

    def read(self, table: TableId, starts: Offsets, ends: Offsets) -> ChangeBatch:
        """Return some thousand changes at most, in order, from `starts` up to `ends`, which must be released."""

    def before(self, table: TableId, reached: Callable[[Position], bool]) -> Offsets | None:
        """Return the offsets after the last commit whose position had not `reached` a given point.

        Returns None if compaction may have removed later changes.
        """

    def newest(self, table: TableId, ends: Offsets) -> ChangeBatch:
        """Return the last dozens of changes of each partition before `ends`."""

    def schemas(self, table: TableId) -> SchemaVersions:
        """Return the table's schemas, complete for all changes read so far."""


def ahead(starts: Offsets, ends: Offsets) -> bool:
    """Return whether changes are left to read."""
    return any(end > starts.get(partition, 0) for partition, end in ends.items())
