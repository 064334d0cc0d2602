"""Which collections an index has, and how one is built anew."""
