"""Limit how often something may happen."""

from __future__ import annotations


class Allowance:
    """Allows `per_minute` uses at once, and then as many per minute."""

    def __init__(self, per_minute: int) -> None:
        self.per_minute = per_minute
        self._left, self._at = float(per_minute), 0.0

    def take(self, now: float) -> bool:
        """Use it once, at `now` (seconds of a monotonic clock). Returns whether this is allowed."""
        self._left = min(self.per_minute, self._left + (now - self._at) * self.per_minute / 60)
        self._at = now
        if self._left < 1:
            return False
        self._left -= 1
        return True
