"""Access the servers that joins read and write: Kafka's topics, schemas and positions; tables in HBase and Kafka."""
