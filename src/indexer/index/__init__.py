"""Batches of edits → documents."""
