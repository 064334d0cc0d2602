"""The goal of a wait, and the conditions under which it is reached.

A goal is a position in a source's log. The capture writes records with its own position to the positions topic. A
record covers the goal if it and all later records are at or after the goal, and if no row of the source is being
read again or held back. Every change up to the goal is then in Kafka.

A joined table shows these changes once its barrier names that record or a later one. An index does once the barriers
of all salt buckets do. Records are identified by their offset. The sequence would not do: it decreases when a source
is rewound, and stays the same for transactions without captured rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from cdc.model.errors import TailorbirdError, UsageError
from cdc.model.event import Position
from cdc.topology.topology import COMPARABLE, Topology
from ingest.binlog.format.gtid import covers, parse_gtid_set
from joins.select.parser import tables_of
from tailorbird.operate.status.captured_position import CapturedPosition

Until = Literal["log", "table", "index"]
UNTIL: tuple[Until, ...] = get_args(Until)


class NotYet(TailorbirdError):
    """Raised when the timeout passes before the goal is reached. The message says what is still missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """All that a source committed up to `position`, which has a GTID set, a place in a log file, or both."""

    source: str
    position: Position

    def __str__(self) -> str:
        place = self.position
        return f"{self.source} up to {place.gtid_set or f'{place.file}:{place.pos}'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReachedGoal:
    """A goal that the log, the tables or the indexes (`until`) reached after `seconds`.

    `offset` is that of the positions record that covers it."""

    source: str
    until: Until
    offset: int
    seconds: float


def goal_of(topology: Topology, source: str, gtid_set: str) -> Goal:
    """Return the goal for a GTID set. Raises UsageError for a polled source, and for text that is not a GTID set."""
    binlog_source(topology, source)
    try:
        if not gtid_set or not parse_gtid_set(gtid_set):
            raise ValueError("it is empty")
    except ValueError as error:
        what = f"{gtid_set!r} is not a GTID set: {error}"
        raise UsageError(what, "SELECT @@gtid_executed (MySQL) or @@gtid_binlog_pos (MariaDB) gives one") from error
    return Goal(source=source, position=Position(file="", pos=0, gtid_set=gtid_set, sequence=0))


def binlog_source(topology: Topology, source: str) -> None:
    """Raise UsageError unless the topology captures the source from a log whose end can be read."""
    if source not in topology.sources:
        raise UsageError(f"{topology.file} has no source {source}", "--source " + " | ".join(topology.sources))
    if topology.sources[source].poll is not None:
        remedy = "a poll publishes a change after at most its interval: see `tailorbird status`"
        raise UsageError(f"source {source} is polled: it has no log, and so no position to wait for", remedy)
    if topology.sources[source].type in ("syslog", "maxscale"):
        what = f"source {source} is of type {topology.sources[source].type}: capture does not know what was sent to it"
        raise UsageError(what, "wait for a source whose log can be read, or look at `tailorbird status`")


def targets(topology: Topology, source: str, until: Until, table: str | None) -> tuple[str, ...]:
    """Return the tables (or with `until` = index, the indexes) that contain the source's rows and report their
    progress.

    `table` restricts them to one table. Raises UsageError if there are none."""
    if until == "log":
        return ()
    if table is not None and table not in topology.tables:
        raise UsageError(f"{topology.file} has no table {table}", "--table " + " | ".join(topology.tables))
    shown = {
        name
        for name, one in topology.tables.items()
        if table in (None, name)
        and one.sink in COMPARABLE
        and source in {id_.source for id_ in tables_of(topology, one)}
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
    """Return the oldest positions record from which on all records cover the goal. None if the newest does not.

    `records` are the source's newest, in order. The oldest one is best, because barriers reach it first."""
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
    """Return whether barriers with the positions `reported` are at or after the record that covers the goal.

    A greater offset alone proves nothing. A later record may belong to a source that was rewound since, and publishes
    old changes again. After a loss of Kafka, barriers of the former log have greater offsets, and greater sequences.
    So the position itself must be at or after the goal; without GTIDs the sequence must not be smaller, either."""
    if goal.source not in reported or int(reported[goal.source]["offset"]) < record.offset:
        return False
    barrier, wanted = reported[goal.source], goal.position
    if wanted.gtid_set:
        reached = str(barrier["gtid_set"])
        return bool(reached) and covers(parse_gtid_set(reached), parse_gtid_set(wanted.gtid_set))
    place = (str(barrier["file"]), int(barrier["pos"]))
    return place >= (wanted.file, wanted.pos) and int(barrier["sequence"]) >= record.sequence


def lacking(
    goal: Goal, until: Until, seconds: float, behind: Sequence[str], captured: CapturedPosition | None
) -> NotYet:
    """Return the error for a timeout. `behind` are the tables or indexes that lack the goal; empty if the log lacks
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
