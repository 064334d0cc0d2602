"""Formats of stored data: what a version reads and writes, and what an upgrade or a downgrade would lose."""
