"""The other end of the stream: agents' identities are checked here, and each session's desk writes to Kafka for it."""
