"""Topics of other writers (Debezium, Maxwell, upsert JSON) as sources, published in Tailorbird's envelope exactly
once."""
