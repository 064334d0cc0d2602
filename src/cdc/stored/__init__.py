"""Storage of rows: columns ⇄ bytes in HBase, fields in Solr, external tables."""
