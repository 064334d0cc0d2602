"""Read a row of a joined table with its trace from Iceberg."""

from __future__ import annotations

from cdc.model.errors import UsageError
from cdc.stored.traces import entries_of
from cdc.topology.topology import Table, Topology
from joins.stores.iceberg.arrow_rows import BATCH, TIMESTAMP, TRACE
from joins.stores.iceberg.iceberg_table import IcebergTable
from joins.stores.iceberg.iceberg_visible import decoded, visible_rows
from tailorbird.verify.explain.explanation import TracedRow
from tailorbird.verify.explain.traced_rows import TracedRows


class IcebergTracedRows(TracedRows):
    """Reads rows of one joined table. Raises Retriable while the catalog is unavailable, UsageError if the table has no
    complete result yet."""

    def __init__(self, topology: Topology, table: Table) -> None:
        assert topology.iceberg is not None, "the reader of topologies requires it"
        self.name, self._table = table.name, IcebergTable(topology.iceberg, table.name)
        served = self._table.served()
        if served is None:
            raise UsageError(f"table {table.name} has no complete result yet", "has its join run? `tailorbird run`")
        self.layout = served.layout

    def row_at(self, row_key: bytes) -> TracedRow | None:
        """Return the row at a row key, or None."""
        layout, rows = visible_rows(self._table, [row_key])
        for found, values in zip(
            rows.select([BATCH, TIMESTAMP, TRACE]).to_pylist(), decoded(layout, rows), strict=True
        ):
            trace = found[TRACE]
            return TracedRow(
                row_key=row_key, timestamp=found[TIMESTAMP] + 1, values=dict(values), layout_id=layout.id,
                batch=found[BATCH], trace=tuple(entries_of(trace)) if trace else None,
            )  # fmt: skip
        return None
