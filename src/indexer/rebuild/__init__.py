"""Rebuild the collection of an index from its HBase table, and swap the new collection with the old one."""
