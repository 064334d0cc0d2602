"""Topics that others write, as a source: Debezium's, Maxwell's and upsert JSON, into our envelope, exactly once."""
