"""Decode packets of a binlog into events, row batches, and JSON lines."""
