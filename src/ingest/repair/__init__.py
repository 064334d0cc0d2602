"""Rows that changed without the log's telling how: found, read again, set right."""
