"""Draft a topology from databases, plan its changes, and roll them out."""
