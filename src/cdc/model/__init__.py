"""What every stage speaks of: types, schemas, events, errors, and the names that two stages agree on."""
