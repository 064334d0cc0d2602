"""How rows are stored: columns ⇄ bytes in HBase, fields in Solr, tables of others."""
