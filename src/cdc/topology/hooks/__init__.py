"""`webhooks:` of a topology file."""
