"""The database host's end: a log of changes that lies behind a gateway, over one stream that the agent dials."""
