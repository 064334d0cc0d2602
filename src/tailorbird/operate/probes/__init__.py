"""Does this server, this port, this machine serve? Knows nothing of the local stack."""
