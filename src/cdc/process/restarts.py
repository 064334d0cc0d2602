"""Restart policy: when an ended process starts again, and when it stays down. Times are seconds of a monotonic clock.

It serves processes (`tailorbird run`) and tables that share one process (`python -m joins`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 30.0
_LONG_ENOUGH = 300.0  # seconds; a process that ran longer than that starts again after the shortest pause
_CHANGING = re.compile(
    r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|\d+"
)  # parts of a reason that differ at each end: ids and positions
_SAME_REASON = 3  # consecutive times


@dataclass(slots=True, kw_only=True)
class Restarts:
    """Decides for each part of a topology when it starts again after it ended, and whether it stays down.

    The pause before a start doubles from 0.5 s up to `longest`. A part that ended three times in a row for the same
    Fatal reason is added to `down`: a restart would fail again. Numbers and ids in a reason may differ.
    """

    longest: float = _LONGEST_PAUSE
    down: dict[str, str] = field(default_factory=dict)
    _began: dict[str, float] = field(default_factory=dict)
    _pauses: dict[str, float] = field(default_factory=dict)
    _due: dict[str, float] = field(default_factory=dict)
    _ends: dict[str, tuple[str, int]] = field(default_factory=dict)

    def began(self, name: str, now: float) -> None:
        """Record the start of a part."""
        self._began[name] = now
        self._due.pop(name, None)

    def ended(self, name: str, now: float, *, fatal: str | None) -> bool:
        """Record the end of a part and plan its restart. `fatal` is the reason if it was a Fatal error.

        Returns False if the part stays down.
        """
        if now - self._began.get(name, now) > _LONG_ENOUGH:
            self._pauses.pop(name, None)
        if fatal is None:
            self._ends.pop(name, None)
        else:
            reason = _CHANGING.sub("#", fatal)
            before, times = self._ends.get(name, (reason, 0))
            self._ends[name] = reason, (times + 1 if before == reason else 1)
            if self._ends[name][1] >= _SAME_REASON:
                self.stays_down(name, fatal)
                return False
        pause = min(self._pauses.get(name, _FIRST_PAUSE), self.longest)
        self._pauses[name] = min(2 * pause, self.longest)
        self._due[name] = now + pause
        return True

    def stays_down(self, name: str, reason: str) -> None:
        """Record that a part must not be restarted."""
        self.down[name] = reason
        self._due.pop(name, None)

    def waits(self, name: str) -> bool:
        """Return whether a part has ended and waits for its restart."""
        return name in self._due

    def due(self, now: float) -> list[str]:
        """Return the names of the parts to start at time `now`."""
        return [name for name, at in self._due.items() if now >= at]
