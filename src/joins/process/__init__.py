"""The process of joins: its tables, each with a query, in one Spark application (ADR 29)."""
