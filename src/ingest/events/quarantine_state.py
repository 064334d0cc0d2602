"""Tables in quarantine, as a checkpoint's state contains them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypedDict


class QuarantinedTable(TypedDict):
    """State of a table in quarantine.

    `sequence` is the sequence number of its first quarantined event, `since_ms` that event's commit time at the source.
    `events` is the number of quarantined events, `why` the reason why the last one could not be decoded.
    """

    sequence: int
    events: int
    since_ms: int
    why: str


def quarantined_tables(state: Mapping[str, Any]) -> dict[str, QuarantinedTable]:
    """Return the tables in quarantine, by `database.table`, from a checkpoint's state.

    In states of older versions only the sequence number is known.
    """
    return {
        name: QuarantinedTable(sequence=found, events=0, since_ms=0, why="") if isinstance(found, int) else found
        for name, found in state.get("kept", {}).items()
    }
