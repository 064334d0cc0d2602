"""Compute the expected result of a query in two ways that do not use the engine.

DuckDB runs the query over whole tables (`sql_oracle`). The simulation runs the plan's steps in memory
(`simulation`)."""
