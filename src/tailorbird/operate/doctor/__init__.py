"""What keeps a topology from running, each fault with its remedy."""
