"""Run a topology's processes, check their servers, and report their state."""
