"""One collection of Solr, and the configuration that it has."""
