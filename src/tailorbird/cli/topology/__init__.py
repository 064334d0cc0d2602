"""Commands for one joined table."""
