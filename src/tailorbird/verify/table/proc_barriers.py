"""Wait for the barriers of a joined table: the common part of the readers of its rows."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Generic, Protocol, TypeVar

from cdc.stored.cells import Barrier
from joins.runtime.cuts import Positions
from tailorbird.verify.settling import SettlingPolicy
from tailorbird.verify.table.covering import uncovered

_POLL = 0.1


class PublishingTable(Protocol):
    """A joined table that publishes barriers."""

    def barrier(self) -> Barrier | None:
        """Return the newest barrier, None before the first."""

    def reached(self) -> Positions:
        """Return each source's position in the newest barrier. Empty if there is none."""

    def last_timestamp(self) -> int:
        """Return the greatest timestamp (ms) of any batch or barrier, or 0."""


T = TypeVar("T", bound=PublishingTable)


class BarrierReader(Generic[T]):
    """Reads the barriers of a joined table, for one thread. Raises Retriable while its server is unavailable."""

    def __init__(self, joined: T, settling: SettlingPolicy) -> None:
        self.joined, self._settling = joined, settling

    def barrier(self) -> Barrier | None:
        """Return the newest barrier, None before the first."""
        return self.joined.barrier()

    def reached(self) -> Positions:
        """Return each source's position in the newest barrier. Empty if there is none."""
        return self.joined.reached()

    def written(self) -> int:
        """Return the newest timestamp (ms) of any batch or barrier."""
        return self.joined.last_timestamp()

    def clock(self) -> int | None:
        """Return what `now()` means in the table (ms), by its newest barrier. None if its query does not use it."""
        barrier = self.barrier()
        return None if barrier is None else barrier.clock

    def wait(self, positions: Mapping[str, str]) -> int | None:
        """Wait for a barrier at or after the positions. Return its timestamp, or None if the settling policy gives
        up."""
        self._settling.begin(time.monotonic())
        while True:
            barrier = self.barrier()
            if barrier is not None and not uncovered(positions, barrier.positions):
                return barrier.timestamp
            if self._settling.used_up(barrier and barrier.timestamp, time.monotonic()):
                return None
            time.sleep(_POLL)
