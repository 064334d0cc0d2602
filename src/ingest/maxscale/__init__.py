"""MaxScale's CDC protocol: a server that serves change topics to its clients, and a MaxScale as a source."""
