"""Read a row of a joined table with its trace from HBase."""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Mapping
from typing import Any

from cdc.model.errors import UsageError
from cdc.model.naming import hbase_table
from cdc.stored.cells import FROM, RowCodec, layout_id_of
from cdc.stored.traces import entries_of
from cdc.topology.topology import Table, Topology
from indexer.table.hbase_layouts import StoredLayouts
from joins.stores.hbase_table import HBaseConnection
from tailorbird.verify.explain.explanation import TracedRow
from tailorbird.verify.explain.traced_rows import TracedRows


class JoinedRows(TracedRows):
    """Reads rows of one joined table. Raises Retriable while HBase is unavailable, UsageError if the table is
    missing or empty."""

    def __init__(self, topology: Topology, table: Table) -> None:
        self.name = table.name
        self._table, self._name = table, hbase_table(topology.name, table.name)
        self._thrift = topology.hbase.thrift
        self._layouts = StoredLayouts(self._thrift, topology=topology.name, table=table.name)
        newest = self._layouts.newest()
        if newest is None:
            raise UsageError(f"table {table.name} has no layout yet", "has its join run? `tailorbird run`")
        self.layout = newest

    def row_at(self, row_key: bytes) -> TracedRow | None:
        """Return the row at an HBase row key, which includes the salt byte, or None. Raises UsageError if a cell is
        missing or damaged."""
        found = self._cells(row_key)
        return self._decoded(row_key, found) if found else None

    def _cells(self, row_key: bytes) -> dict[bytes, tuple[bytes, int]]:
        def read(connection: Any) -> dict[bytes, tuple[bytes, int]]:
            columns = [self._table.family.encode()]
            found = connection.table(self._name).row(row_key, columns=columns, include_timestamp=True)
            return {name.partition(b":")[2]: cell for name, cell in found.items()}

        with contextlib.closing(HBaseConnection(self._thrift)) as hbase:
            return hbase.call(read)

    def _decoded(self, row_key: bytes, found: Mapping[bytes, tuple[bytes, int]]) -> TracedRow:
        cells, timestamp = {name: value for name, (value, _) in found.items()}, max(at for _, at in found.values())
        layout = self.layout
        try:
            if (layout_id := layout_id_of(cells)) != layout.id:
                layout = self._layouts.layout(layout_id)
            row = RowCodec(layout).row(cells)
            # a trace of another time belongs to a version that an older program has since overwritten
            reported, at = found.get(FROM, (b"", timestamp))
            trace = tuple(entries_of(reported)) if reported and at == timestamp else None
        except (KeyError, ValueError, IndexError, struct.error) as error:
            remedy = f"`tailorbird verify … --table {self._table.name}` compares it"
            raise UsageError(f"row {row_key.hex()} is incomplete: {error!r}", remedy) from error
        return TracedRow(
            row_key=row_key, timestamp=timestamp, values=row.values, layout_id=row.layout_id, batch=row.batch,
            trace=trace,
        )  # fmt: skip
