"""Logs of changes: Kafka topics with one Kafka transaction per commit, and an in-memory log for tests."""
