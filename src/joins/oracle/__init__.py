"""Compute the expected result of a query without the engine: DuckDB runs the query over whole tables."""
