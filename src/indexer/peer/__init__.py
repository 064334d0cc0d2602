"""HBase's replication, as a region server speaks it to a peer."""
