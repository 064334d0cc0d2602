"""Store joined tables in PostgreSQL: rows, batches and barriers, and the view that readers use."""
