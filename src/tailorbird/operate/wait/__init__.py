"""Implement `tailorbird wait`: wait until the log, a table or an index contains a commit of a source."""
