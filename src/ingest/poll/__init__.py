"""Capture by polling: read rows with a new `updated_at` (or feed number), for databases whose log cannot be read.

Only a row's last update is guaranteed. Versions that were overwritten between two polls are never seen. Deletes are
found only by a dump of all rows.
"""
