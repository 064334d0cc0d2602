"""The log stage: compare the tables of a source with the change topics."""
