"""Commands by which others read what was captured."""
