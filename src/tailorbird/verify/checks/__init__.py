"""Scheduled comparisons of `verify` and their results."""
