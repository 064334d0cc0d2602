"""The agent's side of a gateway: a change log that is reached over one stream, which the agent dials."""
