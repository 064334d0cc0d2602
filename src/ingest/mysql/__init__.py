"""MySQL and MariaDB as sources: connections, schemas, snapshots, digests and the binary log."""
