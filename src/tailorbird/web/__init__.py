"""Serve the web pages: dashboards of indexes, and the fleet."""
