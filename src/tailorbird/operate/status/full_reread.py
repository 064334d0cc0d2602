"""Sources whose log did not continue: all their tables are read again, and are incomplete until that has ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tailorbird.operate.status.captured_position import CapturedPosition


@dataclass(frozen=True, slots=True, kw_only=True)
class RereadSource:
    """A source whose tables are read again, since `seconds`; `tables` are still to be read."""

    source: str
    why: str
    seconds: float
    tables: int

    def __str__(self) -> str:
        what = "1 table is" if self.tables == 1 else f"{self.tables} tables are"
        return f"source {self.source}: {what} being read again, for {self.seconds:.0f} s: {self.why}"


def reread_sources(captured: Mapping[str, CapturedPosition], now_ms: int) -> list[RereadSource]:
    """Return one entry for each source whose tables are all read again."""
    return [
        RereadSource(
            source=source,
            why=position.reread.why,
            seconds=max(0, now_ms - position.reread.since_ms) / 1000,
            tables=len(position.snapshots),
        )
        for source, position in sorted(captured.items())
        if position.reread is not None
    ]
