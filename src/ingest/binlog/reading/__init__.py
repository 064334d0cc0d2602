"""Packets → events, rows, batches; and the forms in which they are handed out."""
