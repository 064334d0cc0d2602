"""Serve the pages of dashboards with panels, their data, and the browser's files."""
