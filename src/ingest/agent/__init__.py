"""The agent: the process on a database's host, and the local policy that limits what leaves the host."""
