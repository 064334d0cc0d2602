"""Commands for one index."""
