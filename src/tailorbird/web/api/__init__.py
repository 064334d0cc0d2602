"""The REST API of topologies: commands run as operations, rows are searched, and changes are sent as events."""
