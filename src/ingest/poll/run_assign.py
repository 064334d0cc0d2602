"""`tailorbird poll assign`: the process that assigns the numbers of feeds until it is stopped."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import structlog
from prometheus_client import Counter, Gauge

from cdc.lifetime.proc_signals import stop_event
from cdc.model.errors import Retriable, TailorbirdError, UsageError
from cdc.model.extras import extras_named
from cdc.model.polling import BACKLOG_LIMIT
from cdc.model.schema import TableId
from cdc.process.http_operation import serve_operation
from cdc.process.proc_log_lines import log_lines
from cdc.process.verdict import HealthVerdict
from cdc.topology.topology import Source

WAITING = Gauge("tailorbird_feed_waiting_rows", "Rows without a number; the count ends at 10,000", ["source", "table"])
SINCE = Gauge("tailorbird_feed_seconds_since_success", "Since all rows of all tables had a number", ["source"])
FAILURES = Counter("tailorbird_feed_failures", "Failed attempts to assign numbers to a table", ["source", "table"])
_LONGEST_WAIT = 15.0  # seconds between attempts while the database is unavailable
_LATE = 60.0  # least seconds without success after which `/health` reports the process as stuck

log = structlog.get_logger()


def run(
    source: Source, tables: Sequence[TableId], url: str, *, once: bool, metrics_port: int, first: int = 0
) -> int:  # fmt: skip
    """Assign the numbers of some tables until SIGTERM or SIGINT, or with `once` until no row waits.

    `url` is a SQLAlchemy URL of a login that may UPDATE the tables. `first` is the least number to assign. Returns how
    many numbers were assigned. Any number of processes may assign numbers of one table: they wait for each other.
    """
    assert source.poll is not None, "the command chooses polled sources"
    stop = threading.Event() if once else stop_event()
    if not once:
        log_lines("json")
    success, late = [time.monotonic()], max(_LATE, 3 * source.poll.interval)
    SINCE.labels(source.name).set_function(lambda: time.monotonic() - success[0])
    if metrics_port:
        serve_operation(metrics_port, lambda: (_verdict(time.monotonic() - success[0], late), {}))
    rounds = AssignRounds(source, tables, first=first)
    pause = 0.0
    while not stop.is_set():
        try:
            rounds.run(url, once=once, stop=stop, succeeded=lambda: _now(success))
            if once:
                break
        except Retriable as error:
            if once:
                raise
            pause = min(max(2 * pause, error.retry_after), _LONGEST_WAIT)
            log.warning("waiting", why=str(error), seconds=round(pause, 1))
            stop.wait(pause)
    log.info("numbers assigned", source=source.name, rows=rounds.total)
    return rounds.total


class AssignRounds:
    """Rounds over the tables of a source. A table that fails is logged, counted and tried again later, and the others
    continue. `total` is how many numbers were assigned."""

    def __init__(self, source: Source, tables: Sequence[TableId], *, first: int = 0) -> None:
        self._source, self._tables, self._first = source, tables, first
        self._pauses: dict[TableId, tuple[float, float]] = {}  # seconds, and the time of the next attempt
        self._errors: dict[TableId, TailorbirdError] = {}
        self.total = 0

    def run(self, url: str, *, once: bool, stop: threading.Event, succeeded: Callable[[], None]) -> None:
        """Assign numbers over one connection until stopped, or with `once` until no row waits.

        Raises Retriable if the database is unavailable at the start. With `once`, raises the error of a table after the
        others are done; without, a UsageError if all tables have one.
        """
        with extras_named("poll"):
            from ingest.poll.sql_assigner import FeedAssigner  # SQLAlchemy is slow to import
            from ingest.poll.sql_reader import connected

        poll = self._source.poll
        assert poll is not None, "the command chooses polled sources"
        with connected(replace(self._source, url=url), isolation=None) as connection:
            assigners: dict[TableId, FeedAssigner] = {}

            def turn(table: TableId) -> tuple[int, int]:
                if table not in assigners:
                    assigners[table] = FeedAssigner(connection, self._source, table, poll.cursor, first=self._first)
                count = assigners[table].assign(poll.limit)
                return count, assigners[table].waiting(BACKLOG_LIMIT)

            while not stop.is_set():
                full, left = self._round(turn, poll.limit, connection.rollback, once=once)
                if full:
                    continue
                if not self._errors:
                    succeeded()
                elif not self.total and all(isinstance(self._errors.get(one), UsageError) for one in self._tables):
                    raise self._errors[self._tables[0]]
                if once and not left:
                    break
                stop.wait(poll.interval)
        if once and self._errors:
            raise next(iter(self._errors.values()))

    def _round(
        self, turn: Callable[[TableId], tuple[int, int]], limit: int, failed: Callable[[], None], *, once: bool
    ) -> tuple[bool, bool]:  # fmt: skip
        """Give each table a turn. Returns whether one had as many rows as a turn may have, and whether rows wait."""
        full = left = False
        for table in self._tables:
            pause, until = self._pauses.get(table, (0.0, 0.0))
            if time.monotonic() < until or (once and table in self._errors):
                continue
            try:
                count, waiting = turn(table)
            except TailorbirdError as error:
                failed()
                FAILURES.labels(self._source.name, str(table)).inc()
                pause = min(max(2 * pause, 1.0), _LONGEST_WAIT)
                self._pauses[table], self._errors[table] = (pause, time.monotonic() + pause), error
                log.warning("a table failed", table=str(table), why=str(error), seconds=pause)
                continue
            self._pauses.pop(table, None)
            self._errors.pop(table, None)
            self.total += count
            full, left = full or count == limit, left or waiting > 0
            WAITING.labels(self._source.name, str(table)).set(waiting)
        return full, left


def _now(success: list[float]) -> None:
    success[0] = time.monotonic()


def _verdict(since: float, late: float) -> HealthVerdict:
    if since > late:
        return HealthVerdict(status="stuck", reason=f"rows wait for a number since {since:.0f} s")
    return HealthVerdict(status="moving", reason="all rows have a number")
