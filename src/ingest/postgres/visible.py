"""Decide which transactions a snapshot of PostgreSQL shows."""

from __future__ import annotations

from dataclasses import dataclass

_EPOCH, _HALF = 1 << 32, 1 << 31


@dataclass(frozen=True, slots=True, kw_only=True)
class VisibleTransactions:
    """`pg_current_snapshot()`: all below `xmin` have ended, none from `xmax` on, and between them all but `running`.

    Numbers have 64 bits.
    """

    xmin: int
    xmax: int
    running: frozenset[int]

    def shows(self, xid: int) -> bool:
        """Return whether a transaction is visible. Its 32-bit number is taken as the one nearest to `xmax`."""
        wide = self.xmax - (self.xmax - xid) % _EPOCH
        if self.xmax - wide > _HALF:
            wide += _EPOCH
        return wide < self.xmax and wide not in self.running


def visible_of(text: str) -> VisibleTransactions:
    """Parse the server's `xmin:xmax:xid,xid`. Raises ValueError for anything else."""
    xmin, xmax, running = text.split(":")
    return VisibleTransactions(
        xmin=int(xmin), xmax=int(xmax), running=frozenset(int(xid) for xid in running.split(",") if xid)
    )
