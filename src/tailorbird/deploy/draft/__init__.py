"""`tailorbird init`: what the databases look like → a first topology, with the reasons written beside it."""
