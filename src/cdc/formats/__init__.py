"""How a change is written in a topic: one file a format."""
