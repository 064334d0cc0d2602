"""Capture by asking again: rows whose `updated_at` (or feed number) is new, for databases whose log cannot be read.

Only a row's last update is guaranteed: versions that were overwritten between two polls are never seen, and deletes
by a dump of all rows alone.
"""
