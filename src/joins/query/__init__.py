"""The plan of a query: what is kept, in which steps, and the expressions over its values."""
