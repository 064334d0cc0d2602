"""Aggregated tables, read from HBase."""
