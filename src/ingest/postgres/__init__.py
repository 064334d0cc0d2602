"""Capture PostgreSQL: its catalog, tables read in chunks, and its log by logical replication (pgoutput)."""
