"""Facts → records: numbered, paired with their transactions, interleaved with chunks of snapshots."""
