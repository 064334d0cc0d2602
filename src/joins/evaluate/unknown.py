"""Define the error for an expression whose value may differ from Spark's."""

from __future__ import annotations


class UnknownValue(ValueError):
    """The value of an expression is not known here, for a reason; no value is invented instead."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
