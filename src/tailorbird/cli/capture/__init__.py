"""Commands about one source: its capture, its log, its tables."""
