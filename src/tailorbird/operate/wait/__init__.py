"""Implement `tailorbird wait`: wait until Kafka, a joined table or an index contains a commit of a source."""
