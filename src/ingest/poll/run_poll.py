"""Start the polling of a source: its reader, session and metrics."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from prometheus_client import Gauge

from cdc.model.event import Position
from cdc.model.extras import extras_named
from cdc.model.polling import Poll
from cdc.model.schema import TableId
from cdc.topology.topology import Source, Topology
from ingest.capture.observer import Observer
from ingest.capture.signals import Signals
from ingest.mysql.mysql_connection import connected
from ingest.poll.ddl import dialect_of
from ingest.poll.mysql_reader import MySqlReader
from ingest.poll.poll_interfaces import PollReader
from ingest.poll.session import PollObserver, PollSession
from ingest.records.capture_interfaces import ChangeLog, Checkpoint
from ingest.records.records import Recorder
from ingest.report.poll_progress import PollProgress

SINCE_SUCCESS = Gauge(
    "tailorbird_poll_seconds_since_success",
    "Since all tables of a source were polled without an error",
    ["source"],
)
BACKLOG = Gauge(
    "tailorbird_poll_backlog_rows", "Rows after the last published one; the count ends at 10,000", ["source", "table"]
)
BEHIND = Gauge(
    "tailorbird_poll_behind_seconds",
    "max(updated_at) minus the greatest published one; for a feed, the difference of the numbers",
    ["source", "table"],
)
ALARM = Gauge("tailorbird_poll_alarm", "1 while a threshold of the source's alarms is exceeded", ["source"])


class _Reports(PollObserver):
    """Metrics of a polled source. All other reports go to the observer `inner`."""

    def __init__(self, source: Source, inner: Observer, clock: Callable[[], float], progress: PollProgress) -> None:
        self._source, self._inner, self._clock, self._progress = source, inner, clock, progress
        self._unit = 1.0 if source.poll is not None and source.poll.mode == "feed" else 1e6
        SINCE_SUCCESS.labels(source.name).set_function(lambda: clock() - progress.success)
        ALARM.labels(source.name).set_function(lambda: float(bool(progress.alarm(clock()))))

    def phase(self, what: str, **details: object) -> None:
        """Report the begin of a phase, such as the snapshot or the reading of the log. Implements `Observer`."""
        self._inner.phase(what, **details)

    def resumed(self, position: Position) -> None:
        """Report that polling begins; everything before `position` is committed. Implements `Observer`."""
        self._inner.resumed(position)

    def committed(self, checkpoint: Checkpoint) -> None:
        """Report that everything up to the checkpoint is committed. Implements `Observer`."""
        self._inner.committed(checkpoint)

    def captured(self, changes: int) -> None:
        """Count committed changes. Implements `Observer`."""
        self._inner.captured(changes)

    def refused(self, images: int, quarantined: int) -> None:
        """Count row images that became dead letters, and events that were quarantined. Implements `Observer`."""
        self._inner.refused(images, quarantined)

    def snapshot(self, rows: Mapping[str, int]) -> None:
        """Report the number of rows read so far of each table whose snapshot is running. Implements `Observer`."""
        self._inner.snapshot(rows)

    def polled(self, table: TableId, *, backlog: int, lag: int | None, unassigned: int | None = None) -> None:
        """Set the metrics of a table (backlog and lag), and the lag of the source."""
        BACKLOG.labels(self._source.name, str(table)).set(backlog)
        behind = 0.0 if lag is None else max(0, lag) / self._unit
        BEHIND.labels(self._source.name, str(table)).set(behind)
        self._progress.tables[table.name] = backlog, behind
        self._progress.unassigned[table.name] = unassigned or 0
        if self._unit != 1.0:
            self._inner.lag(behind)

    def cycle(self) -> None:
        """Reset the time since the last success, because a poll without new rows is progress, too."""
        self._progress.success = self._clock()
        self._inner.captured(0)


def poll(
    topology: Topology,
    source: Source,
    settings: Poll,
    log: ChangeLog,
    *,
    observer: Observer,
    stopped: Callable[[], bool],
    wait: Callable[[float], object],
    signals: Signals | None = None,
    progress: PollProgress | None = None,
) -> None:
    """Run one session of polling. `progress` is that of all sessions of the source. Raises the errors of
    `PollSession.run`."""
    known = progress or PollProgress(alarms=settings.alarms, success=time.monotonic())
    with _reader(source, settings) as reader:
        PollSession(
            reader=reader,
            log=log,
            recorder=Recorder(topology.name, dialect_of(source), unrepresentable=source.unrepresentable),
            poll=settings,
            clock=_steady_clock(),
            stopped=stopped,
            wait=wait,
            observer=_Reports(source, observer, time.monotonic, known),
            connector=dialect_of(source),
            rules=source.rules,
            signals=signals,
            sharing=source.sharing or (lambda: 1),
        ).run()


@contextmanager
def _reader(source: Source, settings: Poll) -> Iterator[PollReader]:
    if source.type == "sql":
        with extras_named("poll"):
            from ingest.poll.sql_reader import sql_reader  # SQLAlchemy costs 0.3 s and 15 MB, so import it only here

        with sql_reader(source, settings) as reader:
            yield reader
        return
    with connected(source) as connection:
        yield MySqlReader(connection, source, settings)


def _steady_clock() -> Callable[[], float]:
    """Return a clock in seconds since 1970 that never goes back, even if the machine's clock is changed."""
    offset = time.time() - time.monotonic()
    return lambda: time.monotonic() + offset
