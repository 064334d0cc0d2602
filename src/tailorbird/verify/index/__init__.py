"""The index stage: HBase beside Solr."""
