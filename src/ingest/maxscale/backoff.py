"""How long who was wrong waits before being heard again, a user at an address; pure, times are seconds."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

Who = tuple[str, str]  # address, user
_FIRST, _LONGEST, _FORGOTTEN = 0.5, 30.0, 600.0
_MOST = 10_000  # that are remembered


@dataclass(slots=True)
class BackOff:
    """Each wrong login doubles the wait, from half a second to half a minute; a right one ends it."""

    _wrong: OrderedDict[Who, tuple[int, float]] = field(default_factory=OrderedDict)

    def wait(self, who: Who, now: float) -> float:
        """Seconds until they are heard."""
        times, at = self._wrong.get(who, (0, now))
        if times == 0 or now - at > _FORGOTTEN:
            return 0.0
        return max(0.0, at + min(_FIRST * 2.0 ** (times - 1), _LONGEST) - now)

    def wrong(self, who: Who, now: float) -> None:
        """They were wrong."""
        times, at = self._wrong.pop(who, (0, now))
        self._wrong[who] = (1 if now - at > _FORGOTTEN else min(times + 1, 16)), now
        while len(self._wrong) > _MOST:
            self._wrong.popitem(last=False)

    def right(self, who: Who) -> None:
        """They were right."""
        self._wrong.pop(who, None)
