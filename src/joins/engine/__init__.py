"""The plan as a streaming query of Spark, and what runs beside it."""
