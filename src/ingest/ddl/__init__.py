"""What statements in a source's log do to its tables' columns: reads DDL, never runs it."""
