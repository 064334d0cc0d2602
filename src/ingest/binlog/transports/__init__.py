"""Transports: sources of a binlog's bytes, such as files and servers."""
