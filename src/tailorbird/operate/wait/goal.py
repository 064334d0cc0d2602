"""What is waited for, and when it is there. Pure.

A goal is a place in a source's log. A positions record of the capture that lies at or behind it, as all later ones do,
while no row of the source is read again or held back, stands for it: every change up to the goal is in the log then. A
table shows all that once its barrier names this record or a later one, and an index once every bucket's barrier does.
Records are told apart by their offset: their sequence goes back when a source is rewound, and does not move with what
changes no captured row.
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
    """The time was over before the goal was reached; what was waited for is named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """All that a source has committed up to `position`; that has a GTID set, or a file and a place in it, or both."""

    source: str
    position: Position

    def __str__(self) -> str:
        place = self.position
        return f"{self.source} up to {place.gtid_set or f'{place.file}:{place.pos}'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reached:
    """A goal that was reached after so many seconds; `offset` of the positions record that stands for it."""

    source: str
    until: Until
    offset: int
    seconds: float


def goal_of(topology: Topology, source: str, gtid_set: str) -> Goal:
    """A goal that a person names; UsageError for a source without such a log, or a text that is no GTID set."""
    binlog_source(topology, source)
    try:
        if not gtid_set or not parse_gtid_set(gtid_set):
            raise ValueError("it is empty")
    except ValueError as error:
        what = f"{gtid_set!r} is no GTID set: {error}"
        raise UsageError(what, "SELECT @@gtid_executed (MySQL) or @@gtid_binlog_pos (MariaDB) gives one") from error
    return Goal(source=source, position=Position(file="", pos=0, gtid_set=gtid_set, sequence=0))


def binlog_source(topology: Topology, source: str) -> None:
    """UsageError unless the topology captures the source by its log."""
    if source not in topology.sources:
        raise UsageError(f"{topology.file} has no source {source}", "--source " + " | ".join(topology.sources))
    if topology.sources[source].poll is not None:
        remedy = "a poll shows it after at most its interval: see `tailorbird status`"
        raise UsageError(f"source {source} is polled: it has no log to wait for a place in", remedy)


def targets(topology: Topology, source: str, until: Until, table: str | None) -> tuple[str, ...]:
    """The tables, or indexes, that show a source's rows and tell how far; UsageError where there are none."""
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
        what = f"no {until} of {topology.file} that tells how far it is shows rows of {source} in {which}"
        raise UsageError(what, "--until log waits until the log has them")
    return found


def logged(goal: Goal, records: Sequence[CapturedPosition]) -> CapturedPosition | None:
    """The positions record that stands for a goal: the oldest since which every one does; None while the newest does
    not. `records` are a source's newest, in order: of a goal that was reached before anybody asked, barriers tell an
    older record sooner than the newest.
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
    """Whether barriers that tell these positions stand at or behind the positions record that stands for a goal.

    A record behind it may be of a source that was set back meanwhile, and publishes again what it had: then the place
    that it tells is before the goal, or its number before the record's where the source has no GTIDs.
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
    """What to say when the time is over; `behind` are the tables or indexes that lack it, none while the log does."""
    if behind:
        what = f"{until} {', '.join(behind)}"
    elif captured is not None and (captured.snapshot != "done" or not captured.whole):
        what = "the log, while a snapshot of its tables is under way,"
    else:
        what = "the log"
    return NotYet(
        f"after {seconds:g} s {what} has not all of {goal}", "`tailorbird status` tells what does not move; --timeout"
    )
