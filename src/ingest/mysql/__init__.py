"""Capture MySQL and MariaDB: connections, schemas, snapshots, and the log."""
