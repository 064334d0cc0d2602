"""Decode what any source reports, in commit order: its log events, and its tables at each position of its log."""
