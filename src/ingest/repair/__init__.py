"""Repair rows that changed without a complete log entry: find them, read them again, publish corrections."""
