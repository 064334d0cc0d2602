"""PostgreSQL as a source: catalog, snapshots in chunks, digests, and the log by logical replication (pgoutput)."""
