"""MySQL's binary JSON, both ways."""
