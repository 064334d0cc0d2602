"""How long a reader waits for a later cut: as long as the far end comes nearer, within bounds."""

from __future__ import annotations


class SettlingPolicy:
    """Used up when what is waited for stands still for `standstill` seconds, or after `most` seconds of all waits
    together. Times are seconds of one clock.
    """

    def __init__(self, *, standstill: float, most: float) -> None:
        self._standstill, self._left = standstill, most
        self._reached: object = None
        self._moved = self._asked = 0.0

    def begin(self, now: float) -> None:
        """A wait begins."""
        self._reached, self._moved, self._asked = None, now, now

    def used_up(self, reached: object, now: float) -> bool:
        """Whether to give up, seeing how far the far end is; once given up, every later wait is given up at once."""
        self._left -= now - self._asked
        self._asked = now
        if reached != self._reached:
            self._reached, self._moved = reached, now
        if now - self._moved >= self._standstill:
            self._left = 0.0
        return self._left <= 0.0
