"""Capture by polling, for databases whose log cannot be read: read rows with a newer `updated_at` or feed number.

Only the last version of a row is certain to be captured, because versions between two polls may be overwritten. Deletes
are found only by a dump of all rows.
"""
