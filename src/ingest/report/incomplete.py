"""Captured tables that lack rows, as a checkpoint's state names them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ingest.records.capture_interfaces import REREAD
from ingest.records.waiting import WAITS

# the label `why` of the metric, by the part of the state that lists tables for that reason
_PARTS = {"left_out": "left_out", "quarantine": "kept", "waiting": WAITS}


def incomplete_tables(state: Mapping[str, Any]) -> frozenset[tuple[str, str]]:
    """Return (`database.table`, reason) of each table whose topic lacks rows.

    Reasons: `left_out`, `quarantine`, `waiting` (its replica cannot be read), and `reread` (the log was lost, and all
    tables are read again; the table is then `*`). A first snapshot is no reason.
    """
    found = {(table, why) for why, part in _PARTS.items() for table in state.get(part, ())}
    return frozenset(found | {("*", "reread")} if REREAD in state else found)
