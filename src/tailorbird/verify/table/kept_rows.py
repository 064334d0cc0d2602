"""Choose the reader of a joined table's rows: from HBase or PostgreSQL."""

from __future__ import annotations

from cdc.topology.topology import Table, Topology
from tailorbird.verify.settling import SettlingPolicy
from tailorbird.verify.table.hbase_stored_rows import StoredRows
from tailorbird.verify.table.pg_stored_rows import PostgresRows

KeptRows = StoredRows | PostgresRows


def kept_rows(topology: Topology, table: Table, *, settling: SettlingPolicy) -> KeptRows:
    """Return the reader of a table whose sink is HBase or PostgreSQL."""
    if table.sink == "postgres":
        return PostgresRows(topology, table, settling=settling)
    return StoredRows(topology, table, settling=settling)
