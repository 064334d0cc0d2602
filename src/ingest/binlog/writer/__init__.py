"""Binlogs written from values: the inverse of reading."""
