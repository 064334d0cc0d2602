"""What is known of how far a source's capture has come. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ingest.events.left_out import LeftOut
from ingest.events.quarantine_state import QuarantinedTable


@dataclass(frozen=True, slots=True, kw_only=True)
class CapturedPosition:
    """The newest committed position of a source: all GTIDs read, and the sequence of its last published change.

    `snapshots` is the progress of those under way, by `database.table`: rows, total (an estimate), began_ms;
    `repairing` the tables some rows of which are held back until they are mended; `quarantine` those whose rows are
    kept as raw events, `left_out` those that are not captured though they are wanted, by `database.table`. `file` and
    `pos` are its place in the source's log, `offset` its own in the positions topic; `signals` the offset behind the
    last signal that was obeyed; `prepared` is when each XA transaction that is open was prepared, in ms since 1970. Not
    `whole` while rows are read again or held back: the log does not hold yet what the source does.
    `unrepresentable` counts the values that their columns' types cannot hold, published as NULL or as text, by
    `database.table` and column.
    """

    gtid_set: str
    sequence: int
    snapshot: str
    snapshots: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    repairing: tuple[str, ...] = ()
    quarantine: Mapping[str, QuarantinedTable] = field(default_factory=dict)
    left_out: Mapping[str, LeftOut] = field(default_factory=dict)
    file: str = ""
    pos: int = 0
    offset: int = 0
    signals: int = 0
    prepared: tuple[int, ...] = ()
    whole: bool = True
    unrepresentable: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
