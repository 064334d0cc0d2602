"""What a plan's expressions mean, evaluated in Python: one value at a time, as Spark computes it, or not at all."""
