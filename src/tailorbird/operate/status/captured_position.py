"""Progress of a source's capture, as recorded in the positions topic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ingest.events.left_out import LeftOutTable, QuarantinedTable
from ingest.records.waiting import WaitingTable


@dataclass(frozen=True, slots=True, kw_only=True)
class FullReread:
    """Why and since when (ms since 1970) all tables of a source are read again."""

    why: str
    since_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CapturedPosition:
    """The newest committed position of a source: all GTIDs read, and the sequence of its last published change.

    - `file`, `pos`: place in the source's log. `offset`: offset of the record in the positions topic.
    - `snapshots`: running snapshots by `database.table`: rows, total (an estimate), began_ms.
    - `repairing`: tables with rows that are held back until they are read again.
    - `quarantine`, `left_out`: by `database.table`, tables whose rows are kept as raw events, and tables that are
      not captured although the topology names them.
    - `waits`: by `database.table`, tables whose rows cannot be read for now, because their replica is not usable.
    - `signals`: offset after the last executed signal.
    - `prepared`: for each open XA transaction the time of its PREPARE, in ms since 1970.
    - `whole`: false while the log lacks rows of the source, because they are read again or held back.
    - `unrepresentable`: by `database.table` and column, the number of values published as NULL or text, because the
      column's type cannot hold them.
    - `reread`: set while all tables are read again because the log did not continue."""

    gtid_set: str
    sequence: int
    snapshot: str
    snapshots: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    repairing: tuple[str, ...] = ()
    quarantine: Mapping[str, QuarantinedTable] = field(default_factory=dict)
    left_out: Mapping[str, LeftOutTable] = field(default_factory=dict)
    waits: Mapping[str, WaitingTable] = field(default_factory=dict)
    file: str = ""
    pos: int = 0
    offset: int = 0
    signals: int = 0
    prepared: tuple[int, ...] = ()
    whole: bool = True
    unrepresentable: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    reread: FullReread | None = None
