"""Rewrite forms of SQL to simpler ones: subqueries to joins with groups, and LIMIT to row numbers (part of stage 1)."""
