"""Evaluate a plan's expressions in Python: exactly as Spark computes them, or not at all."""
