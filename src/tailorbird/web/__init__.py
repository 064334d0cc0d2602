"""Serve web pages: the dashboards of indexes, and the page of the fleet."""
