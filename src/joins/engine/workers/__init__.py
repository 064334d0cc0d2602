"""Python's side of a session: how Spark's workers start, and what they do but once."""
