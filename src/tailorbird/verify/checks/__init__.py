"""Comparisons of `verify` on a schedule, and what they found."""
