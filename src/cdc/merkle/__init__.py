"""Table digests that every store can compute, so that tables can be compared without moving their rows."""
