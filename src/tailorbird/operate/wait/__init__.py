"""Read your writes: waits until what a source has committed is in the log, a table or an index."""
