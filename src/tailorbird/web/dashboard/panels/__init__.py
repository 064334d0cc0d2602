"""Build the Solr queries of dashboard panels and read the results. No I/O."""
