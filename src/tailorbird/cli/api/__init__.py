"""Commands over the API: serve it, and run commands on another machine with `--api`."""
