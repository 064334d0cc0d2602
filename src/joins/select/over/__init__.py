"""Queries with ROW_NUMBER() and other window functions, whose partitions are ordered (part of stages 3 and 4)."""
