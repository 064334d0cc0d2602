"""Declarations in a topology file, and its strict reader."""
