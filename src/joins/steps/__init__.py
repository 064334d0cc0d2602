"""The steps of a plan: their specification in Python."""
