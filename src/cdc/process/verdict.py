"""Health of a process that depends on servers, for `/health`. Callers pass the time."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Literal

Status = Literal["moving", "starting", "stuck", "away"]


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthVerdict:
    """Answer of a health check; `reason` explains it."""

    status: Status
    reason: str

    @property
    def healthy(self) -> bool:
        """Return whether `/health` answers 200; otherwise it answers 503."""
        return self.status == "moving"


@dataclass(slots=True, kw_only=True)
class HealthTracker:
    """Records what a process does and judges whether it makes progress. All times are seconds of one clock.

    `settling` is how long a server may be unavailable before the process counts as unhealthy. `longest` is the maximum
    duration of one batch. Threads may share a tracker: each waits under its own `key`, so that it ends only its own
    wait.
    """

    settling: float = 30.0
    longest: float = 600.0
    _ready: bool = field(default=False, init=False)
    _down: str = field(default="", init=False)
    _begun: float | None = field(default=None, init=False)
    _waits: dict[Hashable, tuple[float, str]] = field(default_factory=dict, init=False)

    def ready(self) -> None:
        """Record that start-up is complete and that the process reads input from now on."""
        self._ready = True

    def down(self, why: str) -> None:
        """Record that the process cannot continue before somebody repairs the cause; `why` becomes the reason."""
        self._down = why

    def waits(self, key: Hashable, why: str, now: float) -> None:
        """Record that a server is unavailable. Repeated calls with one `key` keep the time of the first."""
        since, _ = self._waits.get(key, (now, ""))
        self._waits[key] = since, why

    def resumes(self, key: Hashable) -> None:
        """End the wait of this key: its server has answered."""
        self._waits.pop(key, None)

    def begun(self, now: float) -> None:
        """Record the start of a batch."""
        self._begun = now

    def ended(self) -> None:
        """Record the end of a batch."""
        self._begun = None

    def judge(self, now: float) -> HealthVerdict:
        """Return the verdict at time `now`: stuck, away (a server is unavailable), starting or moving, with the
        reason."""
        if self._down:
            return HealthVerdict(status="stuck", reason=self._down)
        waits = sorted(self._waits.values())
        if waits and now - waits[0][0] > self.settling:
            since, why = waits[0]
            return HealthVerdict(status="away", reason=f"waits for {now - since:.0f} s: {why}")
        if not self._ready:
            return HealthVerdict(status="starting", reason=waits[0][1] if waits else "it has not started to read yet")
        begun = self._begun
        if begun is not None and now - begun > self.longest:
            return HealthVerdict(status="stuck", reason=f"a batch has been running for {now - begun:.0f} s")
        return HealthVerdict(status="moving", reason="processes its input")
