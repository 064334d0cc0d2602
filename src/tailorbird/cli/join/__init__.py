"""Commands about one joined table."""
