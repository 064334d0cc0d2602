"""Decide whether a PostgreSQL snapshot shows a transaction."""

from __future__ import annotations

from dataclasses import dataclass

_EPOCH, _HALF = 1 << 32, 1 << 31


@dataclass(frozen=True, slots=True, kw_only=True)
class VisibleTransactions:
    """Result of `pg_current_snapshot()`, with 64-bit transaction ids.

    All transactions below `xmin` have ended, and none from `xmax` on. Between them, all have ended but those in
    `running`.
    """

    xmin: int
    xmax: int
    running: frozenset[int]

    def shows(self, xid: int) -> bool:
        """Return whether a transaction is visible. Its id has 32 bits: of the possible 64-bit ids, that nearest to
        `xmax` counts."""
        wide = self.xmax - (self.xmax - xid) % _EPOCH
        if self.xmax - wide > _HALF:
            wide += _EPOCH
        return wide < self.xmax and wide not in self.running


def visible_of(text: str) -> VisibleTransactions:
    """Parse the server's text `xmin:xmax:xid,xid`. Raises ValueError for any other text."""
    xmin, xmax, running = text.split(":")
    return VisibleTransactions(
        xmin=int(xmin), xmax=int(xmax), running=frozenset(int(xid) for xid in running.split(",") if xid)
    )
