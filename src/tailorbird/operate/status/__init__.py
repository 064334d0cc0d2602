"""How far a topology is: captures, snapshots, indexes."""
