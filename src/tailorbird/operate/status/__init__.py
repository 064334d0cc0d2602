"""Collect what `tailorbird status` shows: processes, captures, snapshots, dead letters and indexes."""
