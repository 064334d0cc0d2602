"""Commands that serve captured tables to other systems."""
