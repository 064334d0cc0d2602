"""Repair rows in topics whose changes the log contains only in part or not at all, by reading the rows again."""
