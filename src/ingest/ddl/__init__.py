"""Compute how statements in a source's log change its tables' columns. DDL is parsed, never executed."""
