"""Rewrite calls of other dialects to those of Spark (part of stage 1)."""
