"""What is asked of the log by those who read its changes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from cdc.model.event import Position
from cdc.model.schema import TableId, TableSchema
from ingest.changes.merging import ChangeBatch, Offsets


@dataclass(frozen=True, slots=True)
class SchemaVersions:
    """The schemas that a table's rows had, each from a number of the sequence on, the oldest first."""

    found: tuple[tuple[int, TableSchema], ...]

    def at(self, sequence: int) -> TableSchema:
        """The schema of a change of that number; of one that is older than all, the oldest known."""
        last = self.found[0][1]
        for number, schema in self.found:
            if number > sequence:
                break
            last = schema
        return last


class ChangeTables(Protocol):
    """The tables of a topology as the log has them. Methods block; any thread may call them.

    Every method raises Retriable while the log is away.
    """

    def tables(self) -> tuple[TableId, ...]:
        """The tables of which something was committed."""

    def begins(self, table: TableId) -> Offsets:
        """The first offset that each partition still holds."""

    def released(self, table: TableId) -> Offsets:
        """Up to where each partition is committed, as the newest positions of its source say: whole commits."""

    def read(self, table: TableId, starts: Offsets, ends: Offsets) -> ChangeBatch:
        """Changes from `starts` on, in order, some thousands at most, none behind `ends`, which were released."""

    def before(self, table: TableId, reached: Callable[[Position], bool]) -> Offsets | None:
        """Where to begin so that all is read behind the last commit whose position had not `reached` something.

        None where compaction may have taken some of these changes.
        """

    def newest(self, table: TableId, ends: Offsets) -> ChangeBatch:
        """The last changes of each partition before `ends`, some dozens."""

    def schemas(self, table: TableId) -> SchemaVersions:
        """The table's schemas, all that concern what was read by now."""


def ahead(starts: Offsets, ends: Offsets) -> bool:
    """Whether anything is left to read."""
    return any(end > starts.get(partition, 0) for partition, end in ends.items())
