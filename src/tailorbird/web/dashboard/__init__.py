"""Serve live dashboards over the indexes of a topology."""
