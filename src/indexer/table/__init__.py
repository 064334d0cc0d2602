"""Read joined tables and their layouts from HBase."""
