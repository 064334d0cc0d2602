"""Counts the rows of joined tables, keys alone, up to a number that takes a second or two."""

from __future__ import annotations

from cdc.topology.topology import Table, Topology
from indexer.table.hbase_scan import TableScan
from tailorbird.deploy.plan.seen import RowCount

MOST = 50_000


def counted_rows(topology: Topology, table: Table) -> RowCount:
    """How many rows a table has, barriers left out; not `whole` where there are more than were counted. Retriable while
    HBase is away.
    """
    scan, rows = TableScan(topology, table), 0
    for bucket in range(table.salt_buckets):
        for page in scan.versions(bucket):
            rows += len(page)
            if rows >= MOST:
                return RowCount(rows=rows, whole=False)
    return RowCount(rows=rows)
