"""The table stage: the sources beside HBase."""
