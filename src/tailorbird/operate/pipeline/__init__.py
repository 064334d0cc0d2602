"""Processes of a topology."""
