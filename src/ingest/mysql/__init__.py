"""MySQL and MariaDB as a source: connections, schemas, snapshots, the log."""
