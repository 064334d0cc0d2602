"""The shop of the demo: its databases, its traffic, and the measurement of freshness."""
