"""Configure Spark's Python workers: how they start, and what they prepare once."""
