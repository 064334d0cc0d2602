"""Goal of a wait, and the conditions under which it is reached.

A goal is a place in a source's log. A positions record of the capture represents it if that record and all later ones
are at or after the goal, and no row of the source is being read again or held back. Then every change up to the goal is
in the log. A table shows all of them once its barrier names this record or a later one, and an index once every
bucket's barrier does. Records are distinguished by their offset. Their sequence decreases when a source is rewound, and
does not increase for transactions that change no captured row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from cdc.model.errors import TailorbirdError, UsageError
from cdc.model.event import Position
from cdc.topology.topology import Topology
from ingest.binlog.format.gtid import covers, parse_gtid_set
from joins.select.parser import tables_of
from tailorbird.operate.status.captured_position import CapturedPosition

Until = Literal["log", "table", "index"]
UNTIL: tuple[Until, ...] = get_args(Until)


class NotYet(TailorbirdError):
    """The timeout passed before the goal was reached. The message names what was waited for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """All that a source has committed up to `position`, which has a GTID set, or a file and a place in it, or both."""

    source: str
    position: Position

    def __str__(self) -> str:
        place = self.position
        return f"{self.source} up to {place.gtid_set or f'{place.file}:{place.pos}'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReachedGoal:
    """A goal that was reached after so many seconds; `offset` of the positions record that represents it."""

    source: str
    until: Until
    offset: int
    seconds: float


def goal_of(topology: Topology, source: str, gtid_set: str) -> Goal:
    """Return the goal that a user names. Raises UsageError for a source without such a log, or a text that is not a
    GTID set."""
    binlog_source(topology, source)
    try:
        if not gtid_set or not parse_gtid_set(gtid_set):
            raise ValueError("it is empty")
    except ValueError as error:
        what = f"{gtid_set!r} is not a GTID set: {error}"
        raise UsageError(what, "SELECT @@gtid_executed (MySQL) or @@gtid_binlog_pos (MariaDB) gives one") from error
    return Goal(source=source, position=Position(file="", pos=0, gtid_set=gtid_set, sequence=0))


def binlog_source(topology: Topology, source: str) -> None:
    """Raise UsageError unless the topology captures the source by its log."""
    if source not in topology.sources:
        raise UsageError(f"{topology.file} has no source {source}", "--source " + " | ".join(topology.sources))
    if topology.sources[source].poll is not None:
        remedy = "a poll publishes a change after at most its interval: see `tailorbird status`"
        raise UsageError(f"source {source} is polled: it has no log, and so no position to wait for", remedy)


def targets(topology: Topology, source: str, until: Until, table: str | None) -> tuple[str, ...]:
    """Return the tables or indexes that show a source's rows and report their progress. Raises UsageError if there are
    none."""
    if until == "log":
        return ()
    if table is not None and table not in topology.tables:
        raise UsageError(f"{topology.file} has no table {table}", "--table " + " | ".join(topology.tables))
    shown = {
        name
        for name, one in topology.tables.items()
        if table in (None, name) and one.sink == "hbase" and source in {id_.source for id_ in tables_of(topology, one)}
    }
    if until == "table":
        found = tuple(sorted(shown))
    else:
        found = tuple(sorted(index.name for index in topology.indexes.values() if index.table in shown))
    if not found:
        which = f"table {table}" if table else "any table"
        what = f"no {until} of {topology.file} that reports its progress shows rows of {source} in {which}"
        raise UsageError(what, "use --until log to wait until the log has them")
    return found


def logged(goal: Goal, records: Sequence[CapturedPosition]) -> CapturedPosition | None:
    """Return the oldest positions record since which every record represents the goal; None if the newest does not.

    `records` are a source's newest, in order. For a goal that was already reached, barriers reach an older record
    sooner than the newest one.
    """
    found = None
    for record in reversed(records):
        if not _stands_for(goal, record):
            break
        found = record
    return found


def _stands_for(goal: Goal, record: CapturedPosition) -> bool:
    if record.snapshot != "done" or not record.whole:
        return False
    wanted = goal.position
    if not wanted.gtid_set:
        return (record.file, record.pos) >= (wanted.file, wanted.pos)
    return bool(record.gtid_set) and covers(parse_gtid_set(record.gtid_set), parse_gtid_set(wanted.gtid_set))


def shows(reported: Mapping[str, Mapping[str, Any]], goal: Goal, record: CapturedPosition) -> bool:
    """Return whether barriers with these positions are at or after the positions record that represents a goal.

    A later record may belong to a source that was rewound in the meantime and publishes old changes again. Then its
    place is before the goal, or, for a source without GTIDs, its sequence is before the record's.
    """
    if goal.source not in reported or int(reported[goal.source]["offset"]) < record.offset:
        return False
    barrier = reported[goal.source]
    if int(barrier["offset"]) == record.offset:
        return True
    wanted, reached = goal.position.gtid_set, str(barrier["gtid_set"])
    if not wanted:
        return int(barrier["sequence"]) >= record.sequence
    return bool(reached) and covers(parse_gtid_set(reached), parse_gtid_set(wanted))


def lacking(
    goal: Goal, until: Until, seconds: float, behind: Sequence[str], captured: CapturedPosition | None
) -> NotYet:
    """Return the error for a timeout. `behind` are the tables or indexes that lack the goal; none if the log lacks
    it."""
    if behind:
        what = f"{until} {', '.join(behind)}"
    elif captured is not None and (captured.snapshot != "done" or not captured.whole):
        what = "the log, during a snapshot of its tables,"
    else:
        what = "the log"
    return NotYet(
        f"after {seconds:g} s {what} does not contain all of {goal}",
        "`tailorbird status` shows what makes no progress; --timeout",
    )
