"""The gateway: checks the identities of agents, and writes to Kafka through one session handler per session."""
