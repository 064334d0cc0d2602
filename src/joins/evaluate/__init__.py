"""Evaluate the compiled expressions of a plan in Python, for `verify` and tests.

Results are exactly Spark's. Where that is not certain, `UnknownValue` is raised instead."""
