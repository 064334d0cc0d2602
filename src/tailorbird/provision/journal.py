"""One apply of a topology at a time: a journal that only its writer can go on with, and that says how far it is. Pure.

A lock that ends with its holder's session is not enough: sessions expire in mid-step, while the holder works on. So
each step is written into the journal by compare-and-set before it begins, and who was overtaken learns it there. Steps
are idempotent, so the one step in which two may meet does no harm.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Protocol

from cdc.model.errors import Fatal, UsageError

FORMAT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Applier:
    """Who applies: a process of a host, told from a later one of its number by `ticks`; `token` is one apply of it."""

    host: str
    pid: int
    ticks: int
    token: str

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalEntry:
    """The last apply: when it began (ms), and the step that it was at, `number` of `of`, unless it `ended`."""

    who: Applier
    began_ms: int
    number: int = 0
    of: int = 0
    doing: str = ""
    ended: bool = False

    def to_json(self) -> bytes:
        """Stored form; inverse of `load_entry`."""
        return json.dumps({"format": FORMAT, **asdict(self)}).encode()

    def __str__(self) -> str:
        return f"{self.who}, at step {self.number} of {self.of}: {self.doing}" if self.number else str(self.who)


def load_entry(stored: bytes) -> JournalEntry:
    """Read the stored form; Fatal when it is none of ours."""
    try:
        value = json.loads(stored)
        if value.pop("format") != FORMAT:
            raise ValueError("of an unknown format")
        return JournalEntry(**{**value, "who": Applier(**value["who"])})
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Fatal(
            f"the journal of applies can not be read: {error!r}", "was it written by a newer version?"
        ) from error


class JournalPlace(Protocol):
    """Where a topology's journal is kept (tailorbird.provision.zk_journal). Retriable while it is away.

    `put` writes if the value still has that version (None: if there is none) and returns the new one, else None.
    `held` tells whether a living session holds the topology, `hold` has ours hold it, `let_go` ends that.
    """

    def read(self) -> tuple[bytes, int] | None: ...
    def put(self, value: bytes, version: int | None) -> int | None: ...
    def held(self) -> bool: ...
    def hold(self, token: str) -> None: ...
    def let_go(self, token: str) -> None: ...


class Journal:
    """One apply's part in it. `dead` tells of an applier whether it is known to be gone, on this machine."""

    def __init__(
        self, place: JournalPlace, who: Applier, *, clock_ms: Callable[[], int], dead: Callable[[Applier], bool]
    ) -> None:
        self._place, self._clock_ms, self._dead = place, clock_ms, dead
        self._entry = JournalEntry(who=who, began_ms=clock_ms())
        self._version: int | None = None

    def begin(self) -> JournalEntry | None:
        """Take the topology; the apply that was cut off before, None where the last one came to its end.

        UsageError while another one is at work.
        """
        found = self._place.read()
        last = load_entry(found[0]) if found else None
        if last is not None and not last.ended and self._place.held() and not self._dead(last.who):
            raise UsageError(
                f"another apply is at work: {last}",
                "wait until it ends; of one that was killed on another machine ten seconds are enough",
            )
        self._version = self._place.put(self._entry.to_json(), found[1] if found else None)
        if self._version is None:
            raise UsageError("another apply began at the same moment", "wait until it ends")
        self._place.hold(self._entry.who.token)
        return None if last is None or last.ended else last

    def at(self, number: int, of: int, doing: str) -> None:
        """A step begins. Fatal when another apply has taken the topology meanwhile: nothing may be done any more."""
        self._write(replace(self._entry, number=number, of=of, doing=doing))
        self._place.hold(self._entry.who.token)  # again: the session may have expired, and nobody come

    def end(self) -> None:
        """All steps are done; the next apply may begin."""
        self._write(replace(self._entry, ended=True))

    def let_go(self) -> None:
        """However it ended: nobody has to wait for us."""
        self._place.let_go(self._entry.who.token)

    def _write(self, entry: JournalEntry) -> None:
        version = self._place.put(entry.to_json(), self._version)
        if version is None:
            found = self._place.read()
            last = load_entry(found[0]) if found else None
            if found is None or last is None or last.who != self._entry.who:
                raise Fatal(f"another apply has taken over: {last}", "let it end, then run `tailorbird apply` again")
            # ours: the answer to a write of ours was lost
            version = self._place.put(entry.to_json(), found[1])
            if version is None:
                raise Fatal("another apply has taken over", "let it end, then run `tailorbird apply` again")
        self._entry, self._version = entry, version
