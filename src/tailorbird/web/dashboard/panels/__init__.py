"""Panels: what a dashboard asks of Solr for each of them, and what the answer says; nothing here asks."""
