"""Define the plan of a query: its steps, its state, and the expressions over its values."""
