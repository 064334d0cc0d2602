"""Concepts that all stages share: types, schemas, events, errors, and names."""
