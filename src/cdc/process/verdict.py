"""What `/health` is answered, and how a process that waits for servers comes to it; pure, times are arguments."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Literal

Status = Literal["moving", "starting", "stuck", "away"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What a health check is answered; `reason` says it in words."""

    status: Status
    reason: str

    @property
    def healthy(self) -> bool:
        """Whether the answer is 200; else 503."""
        return self.status == "moving"


@dataclass(slots=True, kw_only=True)
class Standing:
    """Whether a process that takes what comes can go on; all times are seconds of one clock that never goes back.

    `settling`: how long a server may be away and it is no fault yet; `longest`: how long one batch may take. Threads
    may share it: each waits under a `key` of its own, so that none calls another's server back.
    """

    settling: float = 30.0
    longest: float = 600.0
    _ready: bool = field(default=False, init=False)
    _down: str = field(default="", init=False)
    _begun: float | None = field(default=None, init=False)
    _waits: dict[Hashable, tuple[float, str]] = field(default_factory=dict, init=False)

    def ready(self) -> None:
        """It has all that it needs, and takes what comes from now on."""
        self._ready = True

    def down(self, why: str) -> None:
        """It does not go on before somebody has mended what is wrong."""
        self._down = why

    def waits(self, key: Hashable, why: str, now: float) -> None:
        """A server is away; told again and again while it is."""
        since, _ = self._waits.get(key, (now, ""))
        self._waits[key] = since, why

    def resumes(self, key: Hashable) -> None:
        """What waited under this key went through."""
        self._waits.pop(key, None)

    def begun(self, now: float) -> None:
        """A batch is under way."""
        self._begun = now

    def ended(self) -> None:
        """No batch is under way."""
        self._begun = None

    def judge(self, now: float) -> Judgement:
        """Whether data moves or could, and why not."""
        if self._down:
            return Judgement(status="stuck", reason=self._down)
        waits = sorted(self._waits.values())
        if waits and now - waits[0][0] > self.settling:
            since, why = waits[0]
            return Judgement(status="away", reason=f"waits for {now - since:.0f} s: {why}")
        if not self._ready:
            return Judgement(status="starting", reason=waits[0][1] if waits else "it has not begun to read yet")
        begun = self._begun
        if begun is not None and now - begun > self.longest:
            return Judgement(status="stuck", reason=f"a batch has been under way for {now - begun:.0f} s")
        return Judgement(status="moving", reason="takes what comes")
