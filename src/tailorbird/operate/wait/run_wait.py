"""Wait until Kafka, HBase or an index shows a commit of a source, for `tailorbird wait`.

One `Waiter` keeps its connections from one wait to the next.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import TracebackType
from typing import Any

from cdc.model.errors import Retriable, UsageError
from cdc.process.file_topology import load_serving
from cdc.topology.topology import Topology
from indexer.engine.engine import SearchCollection, open_collection
from indexer.index.barriers import positions_of
from ingest.postgres.messages import lsn_of
from ingest.sources import log_end
from joins.process.targets import target_of
from tailorbird.operate.status.captured_position import CapturedPosition
from tailorbird.operate.status.kafka_captured import PositionsReader
from tailorbird.operate.wait.goal import (
    Goal,
    ReachedGoal,
    Until,
    binlog_source,
    goal_of,
    lacking,
    logged,
    shows,
    targets,
)

_SHORTEST, _LONGEST = 0.01, 0.1  # seconds between two polls: a long wait polls rarely,
_PART = 0.05  # and no wait takes longer than this part of it more than needed

Positions = Mapping[str, Mapping[str, Any]]


def wait(
    topology: str, source: str, *, gtid_set: str | None = None, until: Until = "index", table: str | None = None,
    timeout: float = 60.0,
) -> ReachedGoal:  # fmt: skip
    """Wait until everything that a source has committed can be read, or up to a GTID set or LSN of that source.

    `topology` is the path of the YAML file. Without `gtid_set`, the current position of the source is used. Raises
    NotYet after `timeout` seconds. For many waits use one `Waiter`."""
    with Waiter(load_serving(topology)) as waiter:
        goal = waiter.now(source) if gtid_set is None else waiter.goal(source, gtid_set)
        return waiter.wait(goal, until=until, table=table, timeout=timeout)


class Waiter:
    """Waits for commits of a topology's sources, one wait at a time. A context manager, for one thread."""

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self._log = PositionsReader(topology)
        self._tables: dict[str, Callable[[], Positions]] = {}
        self._collections: dict[str, SearchCollection] = {}

    def __enter__(self) -> Waiter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._log.__exit__()
        for collection in self._collections.values():
            collection.close()

    def now(self, source: str) -> Goal:
        """Return the current position of the source as a goal.

        Raises Retriable while the source is unavailable, UsageError if it is polled or unknown."""
        binlog_source(self.topology, source)
        return Goal(source=source, position=log_end(self.topology.sources[source])())

    def goal(self, source: str, position: str) -> Goal:
        """Return the goal for a GTID set, or on PostgreSQL for the LSN of a commit. Raises UsageError for other
        text."""
        binlog_source(self.topology, source)
        named = self.topology.sources[source]
        if named.type != "postgresql":
            return goal_of(self.topology, source, position)
        try:
            lsn = lsn_of(position)
        except ValueError as error:
            what = f"{position!r} is not an LSN, and source {source} is PostgreSQL"
            raise UsageError(what, "run SELECT pg_current_wal_insert_lsn() after the commit") from error
        end = log_end(named)()  # the log must be named, because an LSN alone does not identify it
        return Goal(source=source, position=replace(end, pos=lsn))

    def wait(
        self, goal: Goal, *, until: Until = "index", table: str | None = None, timeout: float = 60.0
    ) -> ReachedGoal:
        """Return when the log, the tables (or only `table`) or the indexes show everything up to the goal.

        Raises NotYet after `timeout` seconds. An unavailable server is polled again; if it stays unavailable, its
        last error is raised instead."""
        begun = time.monotonic()
        left = list(targets(self.topology, goal.source, until, table))
        captured: CapturedPosition | None = None
        record: CapturedPosition | None = None  # represents the goal
        unavailable: Retriable | None = None
        while True:
            try:
                if record is None:
                    captured = self._log.read().get(goal.source)
                    record = logged(goal, self._log.lately(goal.source))
                if record is not None:
                    left = [one for one in left if not shows(self._reported(until, one), goal, record)]
                    if not left:
                        seconds = time.monotonic() - begun
                        return ReachedGoal(source=goal.source, until=until, offset=record.offset, seconds=seconds)
                unavailable = None
            except Retriable as error:
                unavailable = error
            waited = time.monotonic() - begun
            pause = min(max(_SHORTEST, _PART * waited), _LONGEST)
            if waited + pause > timeout:
                raise unavailable or lacking(goal, until, timeout, left if record is not None else (), captured)
            time.sleep(pause)

    def _reported(self, until: Until, name: str) -> Positions:
        if until == "index":
            if name not in self._collections:
                self._collections[name] = open_collection(self.topology, self.topology.indexes[name])
            return positions_of(self._collections[name].barriers())
        if name not in self._tables:
            self._tables[name] = target_of(self.topology, self.topology.tables[name]).reached
        return self._tables[name]()
