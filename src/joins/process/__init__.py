"""Run the process of joins: several tables, each with a query, in one Spark application (ADR 29)."""
