"""`python -m ingest` and `tailorbird capture`: one process that captures one source until it is told to stop."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable

import structlog

from cdc.process.file_running import announced
from cdc.process.file_topology import load_topology
from cdc.process.http_operation import serve_operation
from cdc.process.proc_log_lines import log_lines
from cdc.topology.topology import Source, Topology
from cdc.words.errors import Retriable, UsageError
from cdc.words.schema import TableId
from ingest.capture.groups import Limits
from ingest.capture.session import Session
from ingest.facts.tables import Tables
from ingest.log.kafka_log import KafkaLog
from ingest.log.kafka_signals import KafkaSignals
from ingest.log.kafka_topics import make_topics
from ingest.mysql.mysql_source import MySqlSource
from ingest.records.records import Recorder
from ingest.records.seams import Seen
from ingest.report.http_reports import RESTARTS, Reports

_LONGEST_WAIT = 15.0  # seconds between attempts while a server is away


def choose(topology: Topology, name: str | None) -> Source:
    """The source to capture; it may be left out when the topology has one only."""
    if name is None and len(topology.sources) == 1:
        return next(iter(topology.sources.values()))
    if name is None or name not in topology.sources:
        what = "no source was named" if name is None else f"{topology.file} has no source {name}"
        raise UsageError(what, "--source " + " | ".join(topology.sources))
    return topology.sources[name]


def run(file: str, source_name: str | None, *, metrics_port: int = 0) -> None:
    """Capture until SIGTERM or SIGINT; a server that is away is waited for, anything worse is raised.

    Exactly once for read_committed readers of the topics, whenever and however the process ends (`capture.Session`).
    """
    topology = load_topology(file)
    source = choose(topology, source_name)
    log_lines("json")
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    reports = _reports(topology, source)
    with announced(topology.name, f"capture {source.name}", metrics_port):
        if metrics_port:
            serve_operation(metrics_port, reports.verdict)
            if source.poll is None:
                reports.watch(MySqlSource(source).head, stop)
        capture(topology, source, stopped=stop.is_set, wait=stop.wait, reports=reports)


def _reports(topology: Topology, source: Source) -> Reports:
    return Reports(topology.name, source, structlog.get_logger().bind(topology=topology.name, source=source.name))


def tables_of(source: Source) -> Callable[[Seen], Tables]:
    """What a session asks for the tables of a source, once it has seen the server."""

    def captured(database: str, table: str) -> bool:
        return source.captures(TableId(source=source.name, database=database, table=table))

    def make(seen: Seen) -> Tables:
        charset = seen.catalog.default_charset
        return Tables(source.name, source.databases, captured, seen.dialect, charset, source.rules)

    return make


def capture(
    topology: Topology,
    source: Source,
    *,
    stopped: Callable[[], bool],
    wait: Callable[[float], object],
    reports: Reports | None = None,
) -> None:
    """Sessions one after another until `stopped`; `wait` sleeps so many seconds unless stopped meanwhile."""
    reports = reports or _reports(topology, source)
    pause = 0.0
    while not stopped():
        try:
            kafka = KafkaLog(topology, source, make_topics(topology, source))
            try:
                if source.poll is not None:
                    from ingest.poll.run import poll

                    poll(topology, source, source.poll, kafka, observer=reports, stopped=stopped, wait=wait)
                else:
                    _follow_log(topology, source, kafka, reports, stopped)
            finally:
                kafka.close()
        except Retriable as error:
            pause = error.retry_after if reports.progressed else min(max(2 * pause, error.retry_after), _LONGEST_WAIT)
            reports.progressed = False
            RESTARTS.labels(source.name).inc()
            reports.waiting(str(error), pause)
            wait(pause)
    reports.stopped()


def _follow_log(
    topology: Topology, source: Source, kafka: KafkaLog, reports: Reports, stopped: Callable[[], bool]
) -> None:
    signals = KafkaSignals(topology, source.name)
    try:
        Session(
            source=MySqlSource(source),
            log=kafka,
            recorder=Recorder(topology.name, source.type, kafka.ensure_topic),
            tables=tables_of(source),
            mode=source.snapshot_mode,
            clock=time.time,
            stopped=stopped,
            observer=reports,
            position_lost=source.position_lost,
            cascades=source.cascades,
            signals=signals,
            parallel=source.snapshot_max_threads,
            limits=Limits(heartbeat=source.heartbeat_interval_ms / 1000),
        ).run()
    finally:
        signals.close()
