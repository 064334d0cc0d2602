"""Executors on other machines: the spark-submit command, what it ships, and what they must have."""
