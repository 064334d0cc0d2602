"""XA transactions that are prepared at a source and not committed yet. Their rows are not published until the
commit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tailorbird.operate.status.captured_position import CapturedPosition


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenPreparedTransactions:
    """Number of transactions that are prepared at a source, and the age in seconds of the oldest."""

    source: str
    transactions: int
    oldest_seconds: float

    def __str__(self) -> str:
        what = "XA transaction is" if self.transactions == 1 else "XA transactions are"
        minutes = self.oldest_seconds / 60
        age = f"{self.oldest_seconds:.0f} s" if minutes < 2 else f"{minutes:.0f} min"
        return f"source {self.source}: {self.transactions} {what} prepared, the oldest for {age}; see XA RECOVER there"


def prepared_at(captured: Mapping[str, CapturedPosition], now_ms: int) -> list[OpenPreparedTransactions]:
    """Return one entry for each source with prepared transactions."""
    return [
        OpenPreparedTransactions(
            source=source,
            transactions=len(position.prepared),
            oldest_seconds=max(0, now_ms - min(position.prepared)) / 1000,
        )
        for source, position in sorted(captured.items())
        if position.prepared
    ]
