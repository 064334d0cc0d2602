"""Create the HBase tables, Solr collections and replication peers that a topology needs."""
