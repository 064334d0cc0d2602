"""Decode a position's state of the tables in quarantine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypedDict


class QuarantinedTable(TypedDict):
    """State of a table in quarantine: sequence of its first event, number of events, commit time of the first event at
    its source, and why the last one could not be decoded.
    """

    sequence: int
    events: int
    since_ms: int
    why: str


def quarantined_tables(state: Mapping[str, Any]) -> dict[str, QuarantinedTable]:
    """Return the tables in quarantine, by `database.table`, of a position's state.

    Older states only have the sequence.
    """
    return {
        name: QuarantinedTable(sequence=found, events=0, since_ms=0, why="") if isinstance(found, int) else found
        for name, found in state.get("kept", {}).items()
    }
