"""A topology from its file to its processes."""
