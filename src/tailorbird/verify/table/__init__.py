"""The table stage of `verify`: compare the query over the sources (near end) with the table in HBase (far end)."""
