"""Report the progress of one capture as Prometheus metrics, log lines with positions, and `/health`.

Metrics have the names of Debezium's and Kafka Connect's exporters where these exist.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping

import structlog
from prometheus_client import Counter, Gauge

from cdc.model import naming
from cdc.model.errors import TailorbirdError
from cdc.model.event import Position
from cdc.process.verdict import HealthVerdict
from cdc.topology.topology import Source
from ingest.capture.observer import Observer
from ingest.records.capture_interfaces import Checkpoint
from ingest.report.health import Health
from ingest.report.incomplete import incomplete_tables
from ingest.report.poll_progress import PollProgress

CAPTURED = Counter("tailorbird_captured_changes", "Changes published, snapshot rows included", ["source"])
LAG = Gauge("tailorbird_capture_lag_seconds", "Time from the commit at the source to that in the log", ["source"])
DEAD_LETTERS = Counter("tailorbird_dead_letters", "Refused records and row images, stored as dead letters", ["stage"])
UNREPRESENTABLE = Counter(
    "tailorbird_unrepresentable_values",
    "Values that their column's type cannot represent, published as NULL or as text",
    ["source", "table", "column"],
)
QUARANTINED = Counter("tailorbird_quarantined", "Rows kept as raw events until their columns are known", ["source"])
RESTARTS = Counter("tailorbird_capture_restarts", "Sessions ended by an unavailable server", ["source"])
_STREAM = ["plugin", "name", "context"]
BEHIND = Gauge(
    "debezium_metrics_MilliSecondsBehindSource",
    "From the source's commit to the commit in Kafka, of the last change; 0: none",
    _STREAM,
)
SINCE_EVENT = Gauge("debezium_metrics_MilliSecondsSinceLastEvent", "Time since changes were last published", _STREAM)
# gauges, because Debezium's names lack the suffix `_total` of counters
EVENTS = Gauge("debezium_metrics_TotalNumberOfEventsSeen", "Changes published since the process started", _STREAM)
ERRONEOUS = Gauge("debezium_metrics_NumberOfErroneousEvents", "Refused row images, and rows in quarantine", _STREAM)
COMMITTED = Gauge(
    "debezium_metrics_NumberOfCommittedTransactions",
    "Commits in Kafka, of one or more source transactions",
    _STREAM,
)
CONNECTED = Gauge("debezium_metrics_Connected", "1 while a session runs, 0 while it waits for a server", _STREAM)
POSITION = Gauge("debezium_metrics_SourceEventPosition", "Committed position in the log file", [*_STREAM, "file"])
RUNNING = Gauge("debezium_metrics_SnapshotRunning", "1 while tables are read", _STREAM)
COMPLETED = Gauge("debezium_metrics_SnapshotCompleted", "1 once all tables were read", _STREAM)
SCANNED = Gauge("debezium_metrics_RowsScanned", "Rows read of a table's snapshot", [*_STREAM, "table"])
_TASK = ["connector", "task"]
WRITTEN = Counter("kafka_connect_source_task_metrics_source_record_write", "Changes written to Kafka", _TASK)
UNLOGGED = Counter(
    "tailorbird_capture_untold_changes",
    "Changes missing from the log, by kind; `rows`: repaired rows",
    ["source", "kind"],
)
INCOMPLETE = Gauge(
    "tailorbird_capture_incomplete_tables",
    "1 for each table whose topic lacks rows, by reason: left_out, quarantine, waiting, reread",
    ["source", "table", "why"],
)
HELD = Gauge("tailorbird_capture_held_rows", "Rows held back until they are repaired", ["source"])
MOVING = Gauge("tailorbird_capture_moving", "1 while the health check reports that the capture is moving", ["source"])
HEAD_EVERY = 5.0  # seconds between reads of the end of the server's log


class Reports(Observer):
    """Metrics, log lines and health of one source; implements `Observer`. A commit of changes sets the event
    `progressed`. `polling` is the progress of a polled source, None for any other."""

    def __init__(self, topology: str, source: Source, log: structlog.typing.FilteringBoundLogger) -> None:
        self._log, name = log, source.name
        self._captured, self._lag = CAPTURED.labels(name), LAG.labels(name)
        self._name = name
        self._columns, self._scanned = set[tuple[str, str]](), dict[str, int]()
        self._dead_letters, self._kept = naming.dead_letter_topic(topology), naming.quarantine_topic(topology)
        self._dead = DEAD_LETTERS.labels("capture")
        server = f"{topology}.{name}"
        stream, snapshot = (source.type, server, "streaming"), (source.type, server, "snapshot")
        self._stream, self._snapshot = stream, snapshot
        self._behind, self._events, self._erroneous = (g.labels(*stream) for g in (BEHIND, EVENTS, ERRONEOUS))
        self._commits, self._connected = COMMITTED.labels(*stream), CONNECTED.labels(*stream)
        self._running, self._completed = RUNNING.labels(*snapshot), COMPLETED.labels(*snapshot)
        self._written = WRITTEN.labels(server, "0")
        self._lacking = frozenset[tuple[str, str]]()
        self._next_line = time.monotonic() + 5.0
        self._last = time.monotonic()
        SINCE_EVENT.labels(*stream).set_function(lambda: (time.monotonic() - self._last) * 1000)
        self._poll = source.poll is not None
        self.polling = None if source.poll is None else PollProgress(alarms=source.poll.alarms, success=self._last)
        settling = 30.0 if source.poll is None else max(30.0, 3 * source.poll.interval)
        self._health = Health(started=time.monotonic(), settling=settling, polls=self._poll)
        MOVING.labels(name).set_function(lambda: float(self.verdict()[0].healthy))
        self._waits: Mapping[str, str] = {}
        self.progressed = False

    def phase(self, what: str, **details: object) -> None:
        """Log the begin of a phase, with the position."""
        self._connected.set(1)
        self._log.info(what, **{**self._place(), **details})

    def resumed(self, position: Position) -> None:
        """Record the position at which the session begins."""
        self._health.resumed(position)

    def committed(self, checkpoint: Checkpoint) -> None:
        """Record the committed position in metrics and health."""
        position = checkpoint.position
        before = self._health.position
        self._health.committed(position, time.monotonic())
        self._commits.inc()
        self._incomplete(checkpoint)
        self._running.set(checkpoint.snapshot == "running")
        self._completed.set(checkpoint.snapshot == "done")
        if before is not None and before.file != position.file:
            POSITION.remove(*self._stream, before.file)
        POSITION.labels(*self._stream, position.file).set(position.pos)

    def _incomplete(self, checkpoint: Checkpoint) -> None:
        found = incomplete_tables(checkpoint.state)
        for table, why in self._lacking - found:
            INCOMPLETE.remove(self._name, table, why)
        for table, why in found - self._lacking:
            INCOMPLETE.labels(self._name, table, why).set(1)
        self._lacking = found

    def captured(self, changes: int) -> None:
        """Count committed changes."""
        self._captured.inc(changes)
        self._events.inc(changes)
        self._written.inc(changes)
        self.progressed = True
        if changes or self._poll:
            self._last = time.monotonic()
            self._health.captured(self._last)

    def refused(self, images: int, quarantined: int) -> None:
        """Count dead letters and quarantined events, and log a warning."""
        if images:
            self._dead.inc(images)
            self._erroneous.inc(images)
            self._log.warning("row images refused", images=images, topic=self._dead_letters, **self._place())
        if quarantined:
            QUARANTINED.labels(self._name).inc(quarantined)
            self._erroneous.inc(quarantined)
            self._log.warning("rows quarantined", rows=quarantined, topic=self._kept, **self._place())

    def unrepresentable(self, values: Mapping[tuple[str, str], int]) -> None:
        """Count replaced values by table and column. Log a warning once per column, without the values."""
        for (table, column), count in values.items():
            UNREPRESENTABLE.labels(self._name, table, column).inc(count)
            if (table, column) not in self._columns:
                self._columns.add((table, column))
                self._log.warning(
                    "values cannot be represented: published by the source's `unrepresentable` setting",
                    table=table, column=column, **self._place(),
                )  # fmt: skip

    def repaired(self, counts: Mapping[str, int], waiting: int) -> None:
        """Count repairs by kind, and set the number of pending ones."""
        for kind, count in counts.items():
            if count:
                UNLOGGED.labels(self._name, kind).inc(count)
        HELD.labels(self._name).set(waiting)

    def snapshot(self, rows: Mapping[str, int]) -> None:
        """Log the progress of snapshots every 5 seconds: of the tables that were read since the last line."""
        now = time.monotonic()
        for table, read in rows.items():
            SCANNED.labels(*self._snapshot, table).set(read)
        self._scanned |= rows
        if now >= self._next_line:
            self._next_line = now + 5.0
            shown = {table: f"{read} rows" for table, read in self._scanned.items()}
            self._log.info("snapshot", **shown, **self._place())
            self._scanned.clear()

    def waits(self, tables: Mapping[str, str]) -> None:
        """Log each table whose rows cannot be read, when the reason changes, and when it does not wait any more."""
        before, self._waits = self._waits, dict(tables)
        for table, why in tables.items():
            if before.get(table) != why:
                self._log.warning("tables are not read", table=table, why=why, **self._place())
        for table in sorted(before.keys() - tables.keys()):
            self._log.info("tables do not wait any more", table=table, **self._place())

    def lag(self, seconds: float) -> None:
        """Set the two lag metrics."""
        self._lag.set(seconds)
        self._behind.set(seconds * 1000)

    def waiting(self, why: str, seconds: float) -> None:
        """Log that the capture waits for an unavailable server."""
        self._connected.set(0)
        self._health.failed(why)
        self._log.warning("waiting", why=why, seconds=seconds, **self._place())

    def stopped(self) -> None:
        """Log that the capture has stopped."""
        self._connected.set(0)
        self._log.info("stopped", **self._place())

    def verdict(self) -> tuple[HealthVerdict, dict[str, object]]:
        """Return the verdict and the further fields of `/health`."""
        health = self._health
        shown: dict[str, object] = {"position": _shown(health.position), "head": _shown(health.head)}
        shown["alarm"] = "" if self.polling is None else self.polling.alarm(time.monotonic())
        return health.judge(time.monotonic()), {name: value for name, value in shown.items() if value}

    def watch(self, head: Callable[[], Position], stopped: threading.Event) -> None:
        """Read the end of the server's log every few seconds, in a thread, until stopped."""

        def ask() -> None:
            while not stopped.is_set():
                try:
                    self._health.saw_head(head(), time.monotonic())
                except TailorbirdError as error:
                    self._health.no_head(str(error))
                stopped.wait(HEAD_EVERY)

        threading.Thread(target=ask, name="head", daemon=True).start()

    def _place(self) -> dict[str, object]:
        position = self._health.position
        if position is None or not position.file:
            return {} if position is None else {"sequence": position.sequence}
        return {"position": f"{position.file}:{position.pos}", "sequence": position.sequence}


def _shown(position: Position | None) -> dict[str, object]:
    if position is None:
        return {}
    return {
        "file": position.file,
        "pos": position.pos,
        "gtid_set": position.gtid_set,
        "sequence": position.sequence,
    }
