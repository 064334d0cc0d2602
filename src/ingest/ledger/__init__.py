"""The ledger: digests of the tables' content in the log, updated continuously."""
