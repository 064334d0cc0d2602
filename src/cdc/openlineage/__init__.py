"""OpenLineage: each process is a job, each of its starts a run, with the tables that it reads and writes (ADR 120)."""
