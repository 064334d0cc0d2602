"""`tailorbird poll assign`: the process that assigns the numbers of feeds until it is stopped."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace

import structlog
from prometheus_client import Gauge

from cdc.model.errors import Retriable
from cdc.model.extras import extras_named
from cdc.model.polling import BACKLOG_LIMIT
from cdc.model.schema import TableId
from cdc.process.http_operation import serve_operation
from cdc.process.proc_log_lines import log_lines
from cdc.process.verdict import HealthVerdict
from cdc.topology.topology import Source

WAITING = Gauge("tailorbird_feed_waiting_rows", "Rows without a number; the count ends at 10,000", ["source", "table"])
SINCE = Gauge("tailorbird_feed_seconds_since_success", "Since all rows of all tables had a number", ["source"])
_LONGEST_WAIT = 15.0  # seconds between attempts while the database is unavailable
_LATE = 60.0  # seconds without success after which `/health` reports the process as stuck

log = structlog.get_logger()


def run(source: Source, tables: Sequence[TableId], url: str, *, once: bool, metrics_port: int) -> int:
    """Assign the numbers of some tables until SIGTERM or SIGINT, or with `once` until no row waits.

    `url` is a SQLAlchemy URL of a login that may UPDATE the tables. Returns how many numbers were assigned. Any number
    of processes may assign numbers of one table: they wait for each other.
    """
    stop = threading.Event()
    if not once:
        log_lines("json")
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stop.set())
    success = [time.monotonic()]
    SINCE.labels(source.name).set_function(lambda: time.monotonic() - success[0])
    if metrics_port:
        serve_operation(metrics_port, lambda: (_verdict(time.monotonic() - success[0]), {}))
    total, pause = 0, 0.0
    while not stop.is_set():
        try:
            total += _session(source, tables, url, once=once, stop=stop, succeeded=lambda: _now(success))
            if once:
                break
            pause = 0.0
        except Retriable as error:
            if once:
                raise
            pause = min(max(2 * pause, error.retry_after), _LONGEST_WAIT)
            log.warning("waiting", why=str(error), seconds=round(pause, 1))
            stop.wait(pause)
    log.info("numbers assigned", source=source.name, rows=total)
    return total


def _session(
    source: Source, tables: Sequence[TableId], url: str, *, once: bool, stop: threading.Event,
    succeeded: Callable[[], None],
) -> int:  # fmt: skip
    """Assign numbers over one connection. Raises Retriable if the database is unavailable."""
    with extras_named("poll"):
        from ingest.poll.sql_assigner import FeedAssigner  # SQLAlchemy is slow to import
        from ingest.poll.sql_reader import connected

    assert source.poll is not None, "the command chooses polled sources"
    limit, total = source.poll.limit, 0
    with ExitStack() as stack:
        connection = stack.enter_context(connected(replace(source, url=url), isolation=None))
        assigners = {table: FeedAssigner(connection, source, table, source.poll.cursor) for table in tables}
        while not stop.is_set():
            full = False
            for table, assigner in assigners.items():
                count = assigner.assign(limit)
                total, full = total + count, full or count == limit
                WAITING.labels(source.name, str(table)).set(assigner.waiting(BACKLOG_LIMIT))
            if full:
                continue
            succeeded()
            if once:
                break
            stop.wait(source.poll.interval)
    return total


def _now(success: list[float]) -> None:
    success[0] = time.monotonic()


def _verdict(since: float) -> HealthVerdict:
    if since > _LATE:
        return HealthVerdict(status="stuck", reason=f"rows wait for a number since {since:.0f} s")
    return HealthVerdict(status="moving", reason="all rows have a number")
