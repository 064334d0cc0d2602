"""Access to one collection of Solr, and its configuration."""
