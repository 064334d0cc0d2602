"""Panels of a dashboard: build their Solr queries and read the answers, without any I/O."""
