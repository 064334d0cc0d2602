"""The log stage of `verify`: compare the tables of a source (near end) with the change topics (far end)."""
