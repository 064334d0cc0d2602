"""The index stage: compare rows in HBase with documents in Solr."""
