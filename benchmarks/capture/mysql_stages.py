"""Measure the first stages of a capture by themselves, over the binlog of a pass.

    python -m benchmarks.capture.mysql_stages TOPOLOGY FILE POSITION GTIDS CHANGES

Prints microseconds of wall-clock time per change: for reading and decoding, and for this including the envelopes, keys,
sequence numbers and checkpoints that a log would receive. The rest of a pass's time is spent in Kafka.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from cdc.model.event import Position
from cdc.model.history import Record as HistoryRecord
from cdc.topology.reader import read_topology
from cdc.topology.topology import Source
from ingest.capture.observer import Observer
from ingest.capture.session import Session
from ingest.events.log_events import RowsLogged, TransactionLogged
from ingest.mysql.mysql_source import MySqlSource
from ingest.records.capture_interfaces import Checkpoint, Record, Recovered
from ingest.records.findings import Search
from ingest.records.records import Recorder
from ingest.run_capture import tables_of

_WARM = 0.02  # share of the changes that is not timed: code generation and waits for the server


class Clock:
    """Times the changes after a warm-up part that is not counted."""

    def __init__(self, changes: int) -> None:
        self._changes, self._warm = changes, int(changes * _WARM)
        self._began = 0.0
        self.done = 0

    def count(self, changes: int) -> None:
        """Count changes that were processed."""
        self.done += changes
        if not self._began and self.done >= self._warm:
            self._began, self._warm = time.perf_counter(), self.done

    @property
    def over(self) -> bool:
        """True if all changes were processed."""
        return self.done >= self._changes

    @property
    def microseconds(self) -> float:
        """Microseconds per change."""
        return (time.perf_counter() - self._began) / (self.done - self._warm) * 1e6


class DiscardingLog:
    """A log that stores nothing; implements `ingest.records.capture_interfaces.ChangeLog`."""

    def __init__(self, start: Checkpoint, clock: Clock) -> None:
        self._start, self._clock = start, clock
        self._sequence = 0

    def recover(self) -> Recovered:
        return Recovered(checkpoint=self._start)

    def append(self, record: Record) -> None: ...

    def extend(self, records: Iterable[Record]) -> None:
        for _ in records:
            pass

    def commit(self, checkpoint: Checkpoint) -> None:
        self._clock.count(checkpoint.position.sequence - self._sequence)
        self._sequence = checkpoint.position.sequence

    def kept(self) -> list[Mapping[str, Any]]:
        return []

    def history(self) -> tuple[HistoryRecord, ...]:
        return ()

    def restate(self, records: Iterable[Record]) -> None: ...

    def search(self, search: Search) -> None: ...

    def abort(self) -> None: ...


def decoded(topology: str, source: Source, start: Checkpoint, clock: Clock) -> None:
    """Read and decode the log events only."""
    server = MySqlSource(source)
    tables = tables_of(source)(server.seen())
    tables.begin(server.seen().catalog)
    with server.stream(start, tables, busy=False) as stream:
        for fact in stream:
            rows = fact.rows if isinstance(fact, TransactionLogged) else fact
            if isinstance(rows, RowsLogged):
                clock.count(len(rows.rows))
            if clock.over:
                return


def recorded(topology: str, source: Source, start: Checkpoint, clock: Clock) -> None:
    """Run a whole session without Kafka."""
    Session(
        source=MySqlSource(source),
        log=DiscardingLog(start, clock),
        recorder=Recorder(topology),
        tables=tables_of(source),
        mode="never",
        clock=time.time,
        stopped=lambda: clock.over,
        observer=Observer(),
    ).run()


STAGES: dict[str, Callable[[str, Source, Checkpoint, Clock], None]] = {"decoded": decoded, "recorded": recorded}


def main(file: str, log_file: str, position: str, gtids: str, changes: str) -> None:
    """Print the costs of both stages as JSON."""
    topology = read_topology(Path(file).read_text(), file=file, environ={})
    place = Position(file=log_file, pos=int(position), gtid_set=gtids, sequence=0)
    costs = {}
    for name, stage in STAGES.items():
        clock = Clock(int(changes))
        stage(topology.name, topology.sources["bench"], Checkpoint(position=place, snapshot="done", ts_ms=0), clock)
        costs[name] = clock.microseconds
    print(json.dumps(costs))


if __name__ == "__main__":
    main(*sys.argv[1:])
