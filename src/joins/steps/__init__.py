"""The steps of a plan in Python. They are the specification of the Java kernel, and the oracle uses them."""
