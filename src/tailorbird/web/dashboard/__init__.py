"""The live page of an index."""
