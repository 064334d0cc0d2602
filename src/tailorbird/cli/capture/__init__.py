"""Commands for one source: its capture, its log, its tables."""
