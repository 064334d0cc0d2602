"""Data model of Tailorbird: pure values and functions shared by every stage. Uses the standard library and yaml
only."""
