"""Choose the reader of a joined table's rows: from HBase, PostgreSQL or Iceberg."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from cdc.model.extras import extras_named
from cdc.stored.cells import Barrier
from cdc.stored.layout import Layout
from cdc.topology.topology import Table, Topology
from joins.runtime.cuts import Positions
from tailorbird.verify.settling import SettlingPolicy
from tailorbird.verify.table.hbase_stored_rows import StoredRows
from tailorbird.verify.table.pg_stored_rows import PostgresRows
from tailorbird.verify.table.table_stage import Stored


class KeptRows(Protocol):
    """Reads rows by hexadecimal row key, for one thread. Each call sees one state of the table between two batches, or
    in HBase newer rows.

    Raises Retriable while a server is unavailable, UsageError if the table is missing, Skippable before its first
    complete result."""

    store: str
    """The name of the store, for messages."""

    def check(self, file: str) -> None:
        """Raise UsageError if the table is not there."""

    def layout(self) -> Layout | None:
        """Return the layout of the rows that readers see; None before the first complete result."""

    def barrier(self) -> Barrier | None:
        """Return the newest barrier, None before the first."""

    def reached(self) -> Positions:
        """Return each source's position in the newest barrier. Empty if there is none."""

    def scan(self) -> Iterator[tuple[str, Stored]]:
        """Yield (row key in hexadecimal, row) of every row."""

    def rows(self, keys: Sequence[str]) -> Mapping[str, Stored]:
        """Return the existing rows of these keys."""

    def remove(self, rows: Mapping[str, int]) -> None:
        """Delete rows, each as of a timestamp (ms), so that later writes remain."""

    def written(self) -> int:
        """Return the newest timestamp (ms) of any batch or barrier."""

    def clock(self) -> int | None:
        """Return what `now()` means in the table (ms), by its newest barrier. None if its query does not use it."""

    def wait(self, positions: Mapping[str, str]) -> int | None:
        """Wait for a barrier at or after the positions. Return its timestamp, or None if the settling policy gives
        up."""


def kept_rows(topology: Topology, table: Table, *, settling: SettlingPolicy) -> KeptRows:
    """Return the reader of a table whose sink is HBase, PostgreSQL or Iceberg."""
    if table.sink == "postgres":
        return PostgresRows(topology, table, settling=settling)
    if table.sink == "iceberg":
        with extras_named("iceberg"):
            from tailorbird.verify.table.iceberg_stored_rows import IcebergRows

        return IcebergRows(topology, table, settling=settling)
    return StoredRows(topology, table, settling=settling)
