"""Captured tables, written out in formats of others: each change once, whenever the writer dies."""
