"""Formats of changes in topics and files, one module per format."""
