"""The process that keeps joined tables up to date: several tables, a query each, in one Spark application (ADR 29)."""
