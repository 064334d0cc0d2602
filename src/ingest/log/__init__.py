"""Write changes to Kafka topics, one Kafka transaction per commit; an in-memory log does the same."""
