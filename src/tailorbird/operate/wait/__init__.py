"""Read your writes: wait until the log, a table or an index contains what a source has committed."""
