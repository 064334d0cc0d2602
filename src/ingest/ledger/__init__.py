"""The ledger: hashes of all rows and digests of all tables in the topics, updated continuously, for `verify`."""
