"""Commands that verify and explain: `verify`, `checks` and `explain`."""
