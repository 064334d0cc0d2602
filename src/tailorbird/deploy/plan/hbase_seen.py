"""Count the rows of joined tables by scanning their keys. The number of scanned rows is limited, to one or two
seconds."""

from __future__ import annotations

from cdc.topology.topology import Table, Topology
from indexer.table.hbase_scan import TableScan
from tailorbird.deploy.plan.seen import RowCount

MOST = 50_000


def counted_rows(topology: Topology, table: Table) -> RowCount:
    """Count the rows of a table, without barriers. `whole` is False if the limit was reached.

    Raises Retriable while HBase is unavailable."""
    scan, rows = TableScan(topology, table), 0
    for bucket in range(table.salt_buckets):
        for page in scan.versions(bucket):
            rows += len(page)
            if rows >= MOST:
                return RowCount(rows=rows, whole=False)
    return RowCount(rows=rows)
