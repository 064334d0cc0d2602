"""Turn log events into records: numbered, grouped by transaction, and interleaved with snapshot chunks."""
