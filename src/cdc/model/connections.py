"""Decide which connections of a server stay open: limits in total and per address, and which idle one to close."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """Maximum number of connections of a server, and of idle ones per address.

    `idle` are seconds after which a client that sends nothing is disconnected; 0: never."""

    most: int
    idle_each: int
    idle: float = 10.0


class Connections(Generic[K]):
    """The open connections of one server. Not thread-safe.

    A connection that exceeds a limit replaces an idle one. So a client with many idle connections cannot keep others
    out, because its own connections are closed first. The order is:

    1. connections that have not sent a valid request or login yet, the oldest first;
    2. connections that have, the one first whose last request is the oldest.

    A busy connection (the server processes its request, or it has logged in) is never closed."""

    def __init__(self, limits: ConnectionLimits) -> None:
        self._limits = limits
        self._new, self._used = OrderedDict[K, str](), OrderedDict[K, str]()
        self._busy = dict[K, str]()
        self._idle = Counter[str]()

    def __len__(self) -> int:
        return len(self._new) + len(self._used) + len(self._busy)

    def open(self, key: K, address: str) -> K | None:
        """Add a connection. Returns the one to close now: an idle one, `key` if all others are busy, or None."""
        self._new[key] = address
        self._idle[address] += 1
        if self._idle[address] > self._limits.idle_each:
            return self._oldest(address, key)
        if len(self) > self._limits.most:
            [(crowded, _)] = self._idle.most_common(1)
            return self._oldest(crowded, key)
        return None

    def use(self, key: K) -> None:
        """Note that a connection has sent a valid request and is idle now."""
        if (address := self._remove(key)) is not None:
            self._used[key] = address
            self._idle[address] += 1

    def occupy(self, key: K) -> None:
        """Note that a connection is busy until `use` is called."""
        if (address := self._remove(key)) is not None:
            self._busy[key] = address

    def close(self, key: K) -> None:
        """Remove a connection. Unknown ones are ignored."""
        self._remove(key)

    def _remove(self, key: K) -> str | None:
        for idle in (self._new, self._used):
            if key in idle:
                address = idle.pop(key)
                self._idle[address] -= 1
                if not self._idle[address]:
                    del self._idle[address]
                return address
        return self._busy.pop(key, None)

    def _oldest(self, address: str, newest: K) -> K:
        """Remove and return the idle connection of an address that is closed first; `newest` if there is no other."""
        for idle in (self._new, self._used):
            for key, of in idle.items():
                if of == address and key != newest:
                    self._remove(key)
                    return key
        self._remove(newest)
        return newest
