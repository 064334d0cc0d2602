"""Limits of one agent over all of its streams: a compromised agent opens many, because captures have their own."""

from __future__ import annotations

from collections.abc import Callable

# messages to the coordinator that an agent may send on all streams: in a burst, and per second
_SAYS, _SAYS_PER_SECOND = 2000.0, 200.0
# sessions of an agent; each has a thread, and a Kafka client with threads of its own
SESSIONS = 256


class AgentUse:
    """Count what the streams of one agent use together. All methods are called in the gateway's event loop."""

    def __init__(self) -> None:
        self._alive: list[Callable[[], bool]] = []
        self._allowance, self._counted_at = _SAYS, 0.0

    def may_begin(self) -> bool:
        """Return whether the agent may begin another session. A session counts until its thread has ended."""
        self._alive = [one for one in self._alive if one()]
        return len(self._alive) < SESSIONS

    def begun(self, alive: Callable[[], bool]) -> None:
        """Count a session for as long as `alive()` is true."""
        self._alive.append(alive)

    def may_send(self, now: float) -> bool:
        """Return whether the agent may send a message at this time (monotonic, in seconds)."""
        self._allowance = min(_SAYS, self._allowance + (now - self._counted_at) * _SAYS_PER_SECOND)
        self._counted_at = now
        if self._allowance < 1:
            return False
        self._allowance -= 1
        return True
