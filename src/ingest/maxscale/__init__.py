"""MaxScale's CDC protocol: a server that offers captured tables to its clients, and a MaxScale as a source."""
