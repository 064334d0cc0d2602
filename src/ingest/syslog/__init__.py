"""Syslog as a source: received messages become rows of one append-only table."""
