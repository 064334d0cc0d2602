"""When what has ended begins again, and when it stays down; pure, times are seconds of a clock that never goes back.

For processes (`tailorbird run`) and for the tables that share one (`python -m joins`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 30.0
_LONG_ENOUGH = 300.0  # who ran for so long is not at fault for what ended it before
_CHANGING = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|\d+")  # a start's id, a position that has moved on
_SAME_REASON = 3  # times in a row


@dataclass(slots=True, kw_only=True)
class Restarts:
    """Each end is followed by a pause that doubles from 0.5 s up to `longest`.

    What ended three times in a row for the same Fatal reason stays `down`, with that reason: to start it again repeats
    what nobody has mended. Numbers and ids in a reason may differ.
    """

    longest: float = _LONGEST_PAUSE
    down: dict[str, str] = field(default_factory=dict)
    _began: dict[str, float] = field(default_factory=dict)
    _pauses: dict[str, float] = field(default_factory=dict)
    _due: dict[str, float] = field(default_factory=dict)
    _ends: dict[str, tuple[str, int]] = field(default_factory=dict)

    def began(self, name: str, now: float) -> None:
        """It was started."""
        self._began[name] = now
        self._due.pop(name, None)

    def ended(self, name: str, now: float, *, fatal: str | None) -> bool:
        """It ended by itself; `fatal` is its reason where that was Fatal. Whether it is to be started again."""
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
        """It is not to be started again."""
        self.down[name] = reason
        self._due.pop(name, None)

    def waits(self, name: str) -> bool:
        """Whether its end is known, and it waits to begin again."""
        return name in self._due

    def due(self, now: float) -> list[str]:
        """What is to be started now."""
        return [name for name, at in self._due.items() if now >= at]
