"""Send webhooks when a source stops, rows are missing or differ, or a replication slot keeps too much log (ADR 111)."""
