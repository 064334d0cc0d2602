"""Progress of a source's capture, as its positions records report it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ingest.events.left_out import LeftOutTable
from ingest.events.quarantine_state import QuarantinedTable


@dataclass(frozen=True, slots=True, kw_only=True)
class CapturedPosition:
    """The newest committed position of a source: all GTIDs read, and the sequence of its last published change.

    `snapshots` is the progress of the running ones by `database.table`: rows, total (an estimate), began_ms.
    `repairing` are the tables with rows that are held back until they are repaired. `quarantine` are tables whose rows
    are kept as raw events, `left_out` those that are not captured although the topology names them; both by
    `database.table`. `file` and `pos` are the place in the source's log, `offset` that in the positions topic.
    `signals` is the offset after the last executed signal. `prepared` is when each open XA transaction was prepared, in
    ms since 1970. `whole` is false while rows are read again or held back, because the log then lacks rows of the
    source. `unrepresentable` counts the values that their columns' types cannot hold, published as NULL or as text, by
    `database.table` and column.
    """

    gtid_set: str
    sequence: int
    snapshot: str
    snapshots: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    repairing: tuple[str, ...] = ()
    quarantine: Mapping[str, QuarantinedTable] = field(default_factory=dict)
    left_out: Mapping[str, LeftOutTable] = field(default_factory=dict)
    file: str = ""
    pos: int = 0
    offset: int = 0
    signals: int = 0
    prepared: tuple[int, ...] = ()
    whole: bool = True
    unrepresentable: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
