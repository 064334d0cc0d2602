"""Pages with panels: their server, the shared queries for all viewers, and the browser's files."""
