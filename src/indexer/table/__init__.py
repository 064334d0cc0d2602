"""Access to joined tables in HBase."""
