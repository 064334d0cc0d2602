"""Define the error for an expression whose value may differ from Spark's."""

from __future__ import annotations


class UnknownValue(ValueError):
    """Raised when an expression cannot be evaluated with certainty as Spark would. The message has the reason."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
