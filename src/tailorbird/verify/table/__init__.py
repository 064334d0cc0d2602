"""The table stage: compare the query's answer over the sources with the table in HBase."""
