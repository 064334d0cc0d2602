"""Run a plan as a streaming query of Spark, and manage its session, checkpoint and metrics."""
