"""Where changes go: Kafka's topics, one transaction a commit; and the same in memory."""
