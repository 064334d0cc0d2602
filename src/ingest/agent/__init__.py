"""Capture of one source: its snapshot and its log, as change events in Kafka, each exactly once."""
