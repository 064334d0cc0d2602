"""Interfaces between the change topics and their readers (`tail`, export, MaxScale)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from cdc.model.event import Position
from cdc.model.schema import TableId, TableSchema
from ingest.changes.merging import ChangeBatch, Offsets


@dataclass(frozen=True, slots=True)
class SchemaVersions:
    """The schemas of a table: (sequence number from which it applies, schema), oldest first."""

    found: tuple[tuple[int, TableSchema], ...]

    def at(self, sequence: int) -> TableSchema:
        """Return the schema of a change with a sequence number; the oldest schema for earlier changes."""
        last = self.found[0][1]
        for number, schema in self.found:
            if number > sequence:
                break
            last = schema
        return last


class ChangeTables(Protocol):
    """The captured tables of a topology, as their change topics contain them. Methods block; any thread may call them.

    Every method raises Retriable while Kafka is unavailable.
    """

    def tables(self) -> tuple[TableId, ...]:
        """Return the tables with committed changes."""

    def begins(self, table: TableId) -> Offsets:
        """Return the first retained offset of each partition of a table's topic."""

    def released(self, table: TableId) -> Offsets:
        """Return, for each partition of a table's topic, the end offset in the source's newest checkpoint.

        All changes before it belong to complete commits.
        """

    def read(self, table: TableId, starts: Offsets, ends: Offsets) -> ChangeBatch:
        """Return at most some thousand changes in order, from the offsets `starts` up to `ends`, which must be
        `released`."""

    def before(self, table: TableId, reached: Callable[[Position], bool]) -> Offsets | None:
        """Return the offsets after the last commit whose position `reached` returns False for.

        Returns None if compaction may have removed changes after it.
        """

    def newest(self, table: TableId, ends: Offsets) -> ChangeBatch:
        """Return some dozens of the last changes before `ends` in each partition."""

    def schemas(self, table: TableId) -> SchemaVersions:
        """Return the table's schemas, with those of all changes read so far."""


def ahead(starts: Offsets, ends: Offsets) -> bool:
    """Return whether there are offsets to read from `starts` to `ends`."""
    return any(end > starts.get(partition, 0) for partition, end in ends.items())
