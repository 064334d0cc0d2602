"""Collections of an index, and how to rebuild them."""
