"""What a capture's position tells of the tables in quarantine; pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypedDict


class QuarantinedTable(TypedDict):
    """What a position tells of a table in quarantine: the number of its first event, how many there are, when the first
    was committed at its source, and why the last could not be decoded.
    """

    sequence: int
    events: int
    since_ms: int
    why: str


def quarantined_tables(state: Mapping[str, Any]) -> dict[str, QuarantinedTable]:
    """The tables in quarantine, `database.table`, of a position's state; older ones have the first number alone."""
    return {
        name: QuarantinedTable(sequence=found, events=0, since_ms=0, why="") if isinstance(found, int) else found
        for name, found in state.get("kept", {}).items()
    }
