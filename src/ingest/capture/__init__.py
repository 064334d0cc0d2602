"""Capture of one source: publish its snapshot and its log as change events, exactly once."""
