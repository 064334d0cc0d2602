"""The index stage of `verify`: compare rows in HBase (near end) with documents in Solr (far end)."""
