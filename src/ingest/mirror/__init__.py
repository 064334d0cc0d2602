"""Capture topics of external writers (Debezium, Maxwell, upsert JSON) into Tailorbird's envelope, exactly once."""
