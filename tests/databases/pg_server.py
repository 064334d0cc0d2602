"""A PostgreSQL of the random databases."""
