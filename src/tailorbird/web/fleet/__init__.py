"""The fleet's own certificates."""
