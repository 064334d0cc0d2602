"""PostgreSQL as a source: its catalogue, tables read in chunks, and its log by logical replication (pgoutput)."""
