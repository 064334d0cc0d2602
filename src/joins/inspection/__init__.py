"""Read a join's state from its checkpoint."""
