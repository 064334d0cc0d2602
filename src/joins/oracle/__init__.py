"""Compute a query's expected result independently: by DuckDB over whole tables, and by the steps in memory."""
