"""Limit how long `verify` waits until the far end has caught up."""

from __future__ import annotations

STANDSTILL, MOST = 60.0, 600.0  # seconds of a wait: while the far end makes no progress, and in total


class SettlingPolicy:
    """Ends a wait after `standstill` seconds without progress, or when all waits together took `most` seconds.

    The times that are passed to the methods are seconds of one clock."""

    def __init__(self, *, standstill: float, most: float) -> None:
        self._standstill, self._left = standstill, most
        self._reached: object = None
        self._moved = self._asked = 0.0

    def begin(self, now: float) -> None:
        """Begin a wait."""
        self._reached, self._moved, self._asked = None, now, now

    def used_up(self, reached: object, now: float) -> bool:
        """Return whether to stop waiting. `reached` is the progress of the far end, for example its newest
        timestamp.

        Once it returned true, later waits end at once."""
        self._left -= now - self._asked
        self._asked = now
        if reached != self._reached:
            self._reached, self._moved = reached, now
        if now - self._moved >= self._standstill:
            self._left = 0.0
        return self._left <= 0.0


def settling_policy() -> SettlingPolicy:
    """Return the limits of a stage's waits, or of a repair's."""
    return SettlingPolicy(standstill=STANDSTILL, most=MOST)
