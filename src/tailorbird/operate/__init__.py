"""Run a topology's processes, check their servers, report their state, and wait for commits."""
