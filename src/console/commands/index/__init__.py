"""Commands about one index."""
