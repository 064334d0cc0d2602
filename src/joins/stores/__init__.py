"""Where joins read and write: the log, its schemas and positions; tables in HBase and Kafka."""
