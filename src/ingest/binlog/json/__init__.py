"""Decode and encode MySQL's binary JSON."""
