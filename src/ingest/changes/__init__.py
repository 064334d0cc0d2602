"""Read the committed changes of a table from Kafka in the source's order, for `tailorbird tail`, exports and
MaxScale."""
