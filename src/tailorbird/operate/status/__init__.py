"""Progress of a topology: captures, snapshots, indexes."""
