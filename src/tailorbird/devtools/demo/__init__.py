"""Shop of the demo, its traffic, and the measurement of its freshness."""
