"""The gateway: a gRPC server that authenticates agents, assigns sources to them, and writes their records to Kafka."""
