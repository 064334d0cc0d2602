"""The server side of HBase's replication protocol: region servers send edits to it as to another cluster."""
