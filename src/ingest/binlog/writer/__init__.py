"""Encode and write binlogs; inverse of reading."""
