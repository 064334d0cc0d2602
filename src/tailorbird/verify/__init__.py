"""Whether two tables are equal, row by row and field by field."""
