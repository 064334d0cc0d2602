"""The right answer, told in other ways: DuckDB over whole tables, and the steps in memory."""
