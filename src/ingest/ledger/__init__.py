"""The ledger: digests of what the log says its tables hold, kept up as it flows."""
