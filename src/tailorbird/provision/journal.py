"""A journal in ZooKeeper that admits one apply of a topology at a time and records its progress.

A lock alone is not enough: it ends with its holder's session, which can expire while the holder is in the middle of
a step. So each step is first written to the journal by compare-and-set, which fails if another apply has taken over.
Steps may be repeated, so two applies that overlap in one step do no harm."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Protocol

import orjson

from cdc.model.errors import Fatal, UsageError

FORMAT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Applier:
    """A process that runs an apply. `ticks` is its start time and detects a reused pid. `token` identifies one
    apply."""

    host: str
    pid: int
    ticks: int
    token: str

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalEntry:
    """The last apply: its process `who`, its start, and its current step: `number` of `of`, described by `doing`.

    `ended`: all steps are done."""

    who: Applier
    began_ms: int
    number: int = 0
    of: int = 0
    doing: str = ""
    ended: bool = False

    def to_json(self) -> bytes:
        """Return the JSON that ZooKeeper stores. The inverse of `load_entry`."""
        return json.dumps({"format": FORMAT, **asdict(self)}).encode()

    def __str__(self) -> str:
        return f"{self.who}, at step {self.number} of {self.of}: {self.doing}" if self.number else str(self.who)


def load_entry(stored: bytes) -> JournalEntry:
    """Parse the JSON that `JournalEntry.to_json` wrote. Raises Fatal for an unknown format."""
    try:
        value = orjson.loads(stored)
        if value.pop("format") != FORMAT:
            raise ValueError("unknown format")
        return JournalEntry(**{**value, "who": Applier(**value["who"])})
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Fatal(
            f"the journal of applies cannot be read: {error!r}", "was it written by a newer version?"
        ) from error


class JournalPlace(Protocol):
    """Stores the journal of one topology (tailorbird.provision.zk_journal). Raises Retriable while it is
    unavailable.

    - `put` writes a value if the stored one has the given version (None: there is none). It returns the new version,
      or None if the condition failed.
    - `held` returns whether a live session has the lock. `hold` takes the lock for this session, `let_go` releases
      it."""

    def read(self) -> tuple[bytes, int] | None: ...
    def put(self, value: bytes, version: int | None) -> int | None: ...
    def held(self) -> bool: ...
    def hold(self, token: str) -> None: ...
    def let_go(self, token: str) -> None: ...


class Journal:
    """The journal of one apply. `dead` returns whether an apply of this machine is known to have ended."""

    def __init__(
        self, place: JournalPlace, who: Applier, *, clock_ms: Callable[[], int], dead: Callable[[Applier], bool]
    ) -> None:
        self._place, self._clock_ms, self._dead = place, clock_ms, dead
        self._entry = JournalEntry(who=who, began_ms=clock_ms())
        self._version: int | None = None

    def begin(self) -> JournalEntry | None:
        """Take the lock of the topology. Return the previous apply if it was interrupted, otherwise None.

        Raises UsageError while another apply is running."""
        found = self._place.read()
        last = load_entry(found[0]) if found else None
        if last is not None and not last.ended and self._place.held() and not self._dead(last.who):
            raise UsageError(
                f"another apply is running: {last}",
                "wait until it ends; if it was killed on another machine, wait ten seconds",
            )
        self._version = self._place.put(self._entry.to_json(), found[1] if found else None)
        if self._version is None:
            raise UsageError("another apply began at the same moment", "wait until it ends")
        self._place.hold(self._entry.who.token)
        return None if last is None or last.ended else last

    def at(self, number: int, of: int, doing: str) -> None:
        """Record that a step begins. Raises Fatal if another apply has taken over; no further step may run then."""
        self._write(replace(self._entry, number=number, of=of, doing=doing))
        self._place.hold(self._entry.who.token)  # again: the session may have expired

    def end(self) -> None:
        """Record that all steps are done, so that the next apply may begin."""
        self._write(replace(self._entry, ended=True))

    def let_go(self) -> None:
        """Release the lock. Call it after an error, too."""
        self._place.let_go(self._entry.who.token)

    def _write(self, entry: JournalEntry) -> None:
        version = self._place.put(entry.to_json(), self._version)
        if version is None:
            found = self._place.read()
            last = load_entry(found[0]) if found else None
            if found is None or last is None or last.who != self._entry.who:
                raise Fatal(f"another apply has taken over: {last}", "let it end, then run `tailorbird apply` again")
            # the entry is this apply's own: the answer to its write was lost
            version = self._place.put(entry.to_json(), found[1])
            if version is None:
                raise Fatal("another apply has taken over", "let it end, then run `tailorbird apply` again")
        self._entry, self._version = entry, version
