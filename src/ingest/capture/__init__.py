"""The loop of one source: its snapshot and its log, as change events, each exactly once."""
