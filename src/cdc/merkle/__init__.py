"""Digests of tables that every store can compute alike, so that two of them are compared without moving their rows."""
