"""Store joined tables in Apache Iceberg: rows, batches and barriers, and the table that readers use."""
