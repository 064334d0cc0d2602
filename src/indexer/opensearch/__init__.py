"""Access to one collection of OpenSearch: an index behind an alias."""
