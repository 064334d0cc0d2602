"""Report tables in quarantine as dead letters: all their rows are held back until their columns are known.

Tables that are left out, or wait for their replica, are reported, too: they are read once the reason has gone. Captures
repeat these lists with each position. So this report reads nothing else, and it does not expire with the raw events."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from ingest.events.left_out import LeftOutTable
from ingest.records.waiting import reason
from tailorbird.operate.status.captured_position import CapturedPosition
from tailorbird.operate.status.dead_letters import (
    LEFT_OUT,
    QUARANTINE,
    WAITING,
    DeadLetterRow,
    OpenDeadLetters,
)


def quarantined(positions: Mapping[str, CapturedPosition]) -> list[OpenDeadLetters]:
    """Return the number of raw events of each table in quarantine, then of skipped rows of each table that is left
    out, then each table that waits for its replica."""
    kept = [
        OpenDeadLetters(stage=QUARANTINE, of=one.of, dead_letters=one.count, reason=one.reason)
        for one in quarantine_dead_letters(positions)
    ]
    left_out = [
        OpenDeadLetters(stage=LEFT_OUT, of=f"{source}.{name}", dead_letters=max(1, left["rows"]), reason=_reason(left))
        for source, position in sorted(positions.items())
        for name, left in sorted(position.left_out.items())
    ]
    waiting = [
        OpenDeadLetters(stage=WAITING, of=f"{source}.{name}", dead_letters=1, reason=reason(one))
        for source, position in sorted(positions.items())
        for name, one in sorted(position.waits.items())
    ]
    return kept + left_out + waiting


def _reason(left: LeftOutTable) -> str:
    return f"{left['why']}; {left['remedy']}"


def quarantine_dead_letters(positions: Mapping[str, CapturedPosition]) -> list[DeadLetterRow]:
    """Return one dead letter per table in quarantine. Its `count` is the number of raw events."""
    found = []
    for source, position in sorted(positions.items()):
        for name, kept in sorted(position.quarantine.items()):
            of = f"{source}.{name}"
            dead_letter = DeadLetterRow(
                id=hashlib.sha256(f"{QUARANTINE} {of}".encode()).hexdigest()[:10],
                stage=QUARANTINE, of=of, key="all rows", position=f"change {kept['sequence']} of {source}",
                reason=kept["why"], table=of, reads=False, first_ms=kept["since_ms"], last_ms=kept["since_ms"],
                count=kept["events"], partition=-1, offset=-1,
            )  # fmt: skip
            found.append(dead_letter)
    return found
