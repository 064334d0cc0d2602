"""Conversion of batches of edits to documents."""
