"""Implement `tailorbird verify`: compare each stage of a pipeline, row by row, with what it should contain.

A stage has two ends. The *near end* is closer to the source and is right, the *far end* is checked. The log stage
compares the source with Kafka, the table stage the query over the sources with HBase, the index stage HBase with
Solr."""
