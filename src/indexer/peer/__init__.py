"""HBase's replication protocol, as a region server uses it with a peer."""
