"""Trace each cell of a stored row back to its event in the log."""
