"""External tables, which other systems write."""
