"""Delay logins after failed ones, by address and user. Times are seconds."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

Who = tuple[str, str]  # address, user
_FIRST, _LONGEST, _FORGOTTEN = 0.5, 30.0, 600.0
_MOST = 10_000  # maximum number of entries


@dataclass(slots=True)
class BackOff:
    """Delays logins: each failed one doubles the delay, from 0.5 to 30 seconds, and a successful one resets it."""

    _wrong: OrderedDict[Who, tuple[int, float]] = field(default_factory=OrderedDict)

    def wait(self, who: Who, now: float) -> float:
        """Return for how many seconds the next login must be delayed. 0.0: it need not wait."""
        times, at = self._wrong.get(who, (0, now))
        if times == 0 or now - at > _FORGOTTEN:
            return 0.0
        return max(0.0, at + min(_FIRST * 2.0 ** (times - 1), _LONGEST) - now)

    def wrong(self, who: Who, now: float) -> None:
        """Count a failed login."""
        times, at = self._wrong.pop(who, (0, now))
        self._wrong[who] = (1 if now - at > _FORGOTTEN else min(times + 1, 16)), now
        while len(self._wrong) > _MOST:
            self._wrong.popitem(last=False)

    def right(self, who: Who) -> None:
        """Reset the delay after a successful login."""
        self._wrong.pop(who, None)
