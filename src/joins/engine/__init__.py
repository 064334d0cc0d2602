"""Run the plan as a streaming query of Spark, and manage its session and checkpoint."""
