"""Decode packets into events, rows and batches, and output them in several forms."""
