"""Metrics, log lines and health of a capture."""
