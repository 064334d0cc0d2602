"""Implement `tailorbird doctor`: find faults that prevent a topology from running, each with its remedy."""
