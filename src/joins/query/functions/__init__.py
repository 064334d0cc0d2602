"""Define the functions that queries may call, and check and compile their arguments."""
