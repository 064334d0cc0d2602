"""Implement `tailorbird explain`: trace each cell of a joined row back to its event in Kafka.

With each row the join stores a trace: for each node of the plan, the topic offset of the record that it comes from."""
