"""Protect the pages: security headers, checks of the origin, login, and the server's settings."""
