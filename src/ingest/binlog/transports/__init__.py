"""Transports of a binlog's bytes: files, servers, and a background thread."""
