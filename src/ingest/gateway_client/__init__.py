"""The agent's change log: it sends records to a gateway over one stream, which the agent dials."""
