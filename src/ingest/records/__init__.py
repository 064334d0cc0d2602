"""Turn log events into Kafka records: numbered, with their transaction, and interleaved with snapshot chunks."""
