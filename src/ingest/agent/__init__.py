"""A database's host: the process that runs there, and what its owner lets leave, whatever a gateway says."""
