"""Read the rows of a joined table from Iceberg: the far end of the table stage."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa

from cdc.model.errors import UsageError
from cdc.stored.cells import document_id
from cdc.stored.layout import Layout
from cdc.topology.topology import Table, Topology
from joins.stores.iceberg.arrow_rows import KEY, TIMESTAMP
from joins.stores.iceberg.iceberg_table import IcebergTable
from joins.stores.iceberg.iceberg_visible import decoded, visible_rows
from tailorbird.verify.settling import SettlingPolicy
from tailorbird.verify.table.proc_barriers import BarrierReader
from tailorbird.verify.table.table_stage import Stored


class IcebergRows(BarrierReader[IcebergTable]):
    """Reads rows from the data files that readers see (`tailorbird.verify.table.kept_rows.KeptRows`)."""

    store = "Iceberg"

    def __init__(self, topology: Topology, table: Table, *, settling: SettlingPolicy) -> None:
        assert topology.iceberg is not None, "the reader of topologies requires it"
        super().__init__(IcebergTable(topology.iceberg, table.name), settling)

    def check(self, file: str) -> None:
        """Raise UsageError if the table is not there."""
        if not self.joined.runs():
            raise UsageError(f"{self.joined.where} has no table {self.joined.name}", f"`tailorbird run {file}`")

    def layout(self) -> Layout | None:
        """Return the layout of the rows that readers see; None before the first complete result."""
        served = self.joined.served()
        return served.layout if served else None

    def scan(self) -> Iterator[tuple[str, Stored]]:
        """Yield (row key in hexadecimal, row) of every row, in no certain order. All rows are of one moment.

        Raises Skippable if the table has no complete result yet."""
        yield from _stored(*visible_rows(self.joined))

    def rows(self, keys: Sequence[str]) -> Mapping[str, Stored]:
        """Return the existing rows of these keys."""
        return dict(_stored(*visible_rows(self.joined, [bytes.fromhex(key) for key in keys]))) if keys else {}

    def remove(self, rows: Mapping[str, int]) -> None:
        """Delete rows, each as of a timestamp (ms), so that later writes remain."""
        self.joined.delete_rows({bytes.fromhex(key): timestamp for key, timestamp in rows.items()})


def _stored(layout: Layout, rows: pa.Table) -> Iterator[tuple[str, Stored]]:
    """Yield row keys in hexadecimal, and rows with their version: HBase's of a put in the same batch."""
    stamps, keys = rows[TIMESTAMP].to_pylist(), rows[KEY].to_pylist()
    for key, timestamp, values in zip(keys, stamps, decoded(layout, rows), strict=True):
        yield document_id(key), Stored(2 * (timestamp + 1), dict(values))
