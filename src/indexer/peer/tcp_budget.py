"""Bound the bytes of all connections together: incomplete frames, and batches that wait or are processed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

_STALLED = 0.25  # seconds without a byte after which an incomplete frame makes room for others
_CHECK = 0.1


class HeldBytes:
    """Bytes of one connection's incomplete frame, since when it exists and since when the server waits for its rest.

    Times are seconds of `time.monotonic`."""

    def __init__(self, end: Callable[[], None]) -> None:
        self.size, self.began, self.waits_since = 0, 0.0, 0.0
        self._end, self.ended = end, False

    def end(self) -> None:
        """Close the connection, to make room for others."""
        self.ended = True
        self._end()


class ByteBudget:
    """Limits received bytes. Thread-safe; each connection is read by a thread of its own.

    If the limit is reached, the connection that wants more waits. Connections whose frame is incomplete and whose
    client sends nothing are then closed: HBase sends a frame without pauses, and repeats it on a new connection.
    If all the bytes belong to incomplete frames of clients that do send, the newest of them is closed. So the oldest
    frame is always completed, and a frame that is larger than the limit is received alone."""

    def __init__(self, size: int) -> None:
        self._size, self._taken = size, 0
        self._changed = threading.Condition()
        self._held = dict[HeldBytes, None]()
        self._batches = 0

    @property
    def taken(self) -> int:
        """Return the number of bytes that are in memory."""
        return self._taken

    def enter(self, end: Callable[[], None]) -> HeldBytes:
        """Add a connection, and return the entry for its bytes. `end` is called to close the connection."""
        held = HeldBytes(end)
        with self._changed:
            self._held[held] = None
        return held

    def leave(self, held: HeldBytes) -> None:
        """Remove a connection, and release its incomplete frame."""
        with self._changed:
            del self._held[held]
            self._release(held.size)

    def waits(self, held: HeldBytes) -> None:
        """Note that the server now waits for bytes of this connection."""
        held.waits_since = time.monotonic()

    def take(self, held: HeldBytes, size: int) -> None:
        """Count bytes that arrived on a connection. Waits while they exceed the limit.

        Raises ConnectionAbortedError if the connection is closed to make room for others."""
        with self._changed:
            held.waits_since = 0.0
            while self._taken + size > self._size and self._taken > held.size:
                if held.ended:
                    raise ConnectionAbortedError("its incomplete frame made room for others")
                if not self._changed.wait(_CHECK):
                    self._make_room()
            if not held.size:
                held.began = time.monotonic()
            held.size += size
            self._taken += size

    def complete(self, held: HeldBytes, rest: int, batches: int) -> None:
        """Note that frames of a connection are complete: `rest` bytes of the next one remain.

        `batches` bytes stay counted until `give_back`."""
        with self._changed:
            self._batches += batches
            self._release(held.size - rest - batches)
            held.size, held.began = rest, time.monotonic()

    def give_back(self, size: int) -> None:
        """Release the bytes of a batch."""
        with self._changed:
            self._batches -= size
            self._release(size)

    def _release(self, size: int) -> None:
        self._taken -= size
        self._changed.notify_all()

    def _make_room(self) -> None:
        now = time.monotonic()
        partial = [held for held in self._held if held.size]
        stalled = [held for held in partial if held.waits_since and now - held.waits_since >= _STALLED]
        if not stalled and not self._batches and all(not held.waits_since for held in partial):
            stalled = sorted(partial, key=lambda held: held.began)[1:][-1:]
        for held in stalled:
            held.end()
