"""Rewrite lists whose members become rows (part of stage 1)."""
