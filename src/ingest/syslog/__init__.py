"""Syslog as a source: what is sent here becomes rows of one table, which only grows."""
