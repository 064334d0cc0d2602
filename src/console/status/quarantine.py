"""Tables in quarantine, told beside the dead letters: all rows of each wait until its columns are known. Pure.

Captures say so with each position, as long as it is so: nothing is counted or read again for it, and it does not expire
with the raw events.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from console.status.captured_position import CapturedPosition
from console.status.dead_letters import QUARANTINE, Letter, Waiting


def quarantined(positions: Mapping[str, CapturedPosition]) -> list[Waiting]:
    """How many events wait, by captured table."""
    return [
        Waiting(stage=QUARANTINE, of=one.of, letters=one.count, reason=one.reason)
        for one in quarantine_letters(positions)
    ]


def quarantine_letters(positions: Mapping[str, CapturedPosition]) -> list[Letter]:
    """One for each table; `count` is how many events are kept of it."""
    found = []
    for source, position in sorted(positions.items()):
        for name, kept in sorted(position.quarantine.items()):
            of = f"{source}.{name}"
            letter = Letter(
                id=hashlib.sha256(f"{QUARANTINE} {of}".encode()).hexdigest()[:10],
                stage=QUARANTINE, of=of, key="of all rows", position=f"change {kept['sequence']} of {source}",
                reason=kept["why"], table=of, reads=False, first_ms=kept["since_ms"], last_ms=kept["since_ms"],
                count=kept["events"], partition=-1, offset=-1,
            )  # fmt: skip
            found.append(letter)
    return found
