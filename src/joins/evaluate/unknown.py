"""Raised where an expression's value is not known to be what Spark computes."""

from __future__ import annotations


class UnknownValue(ValueError):
    """The value of an expression is not known here, for a reason; no value is invented instead."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
