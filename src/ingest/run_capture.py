"""`python -m ingest` and `tailorbird capture`: the process that captures one source until it is stopped."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import structlog

from cdc.lifetime.proc_signals import stop_event
from cdc.model.errors import Retriable, UsageError
from cdc.model.schema import TableId, TableSchema
from cdc.openlineage.http_runs import LineageRun, lineage_run
from cdc.otel.http_metrics import send_metrics
from cdc.otel.http_spans import tracer_of
from cdc.process.file_running import announced
from cdc.process.file_topology import load_topology
from cdc.process.http_operation import serve_operation
from cdc.process.kafka_grants import check_grants
from cdc.process.proc_log_lines import log_lines
from cdc.topology.topology import Source, Topology
from ingest.capture.checked_signals import CheckedSignals
from ingest.capture.groups import Limits
from ingest.capture.session import Session
from ingest.capture.signals import ClosableSignals, Signals
from ingest.events.log_place import parse_place
from ingest.events.restricted import restriction_of
from ingest.events.tables import Tables
from ingest.log.kafka_log import KafkaLog
from ingest.log.kafka_signals import KafkaSignals
from ingest.log.kafka_topics import make_topics
from ingest.log.schemas_log import SchemasLog
from ingest.log.traced_log import TracedLog
from ingest.mysql.mysql_log_start import log_start
from ingest.records.capture_interfaces import OpenLog, ServerTables
from ingest.records.exact_phases import ExactPhases, images_of
from ingest.records.records import Recorder
from ingest.report.http_reports import RESTARTS, Reports
from ingest.report.lineage import datasets_of
from ingest.sources import log_end, server_of

if TYPE_CHECKING:
    from ingest.gateway_client.gateway_log import SessionChannels

_LONGEST_WAIT = 15.0  # seconds between attempts while a server is unavailable


def choose(topology: Topology, name: str | None) -> Source:
    """Return the source to capture. The name is optional if the topology has only one source.

    Raises UsageError if the choice is missing or wrong.
    """
    if name is None and len(topology.sources) == 1:
        return next(iter(topology.sources.values()))
    if name is None or name not in topology.sources:
        what = "no source is given" if name is None else f"{topology.file} has no source {name}"
        raise UsageError(what, "--source " + " | ".join(topology.sources))
    return topology.sources[name]


def check_begin(source: Source, begin: str) -> None:
    """Raise UsageError if a capture of the source cannot begin at an older position, or the text is none."""
    if source.type not in ("mysql", "mariadb") or source.poll is not None:
        what = f"source {source.name} has no binary log, so it cannot begin at an older position"
        raise UsageError(what, "start it without --from")
    parse_place(begin)


def run(
    file: str,
    source_name: str | None,
    *,
    metrics_port: int = 0,
    gateways: Sequence[str] = (),
    identity: str = "",
    begin: str = "",
) -> None:
    """Capture one source until SIGTERM or SIGINT. Waits while a server is unavailable, and raises all other errors.

    Writes to Kafka, or through one of `gateways` (host:port) as the agent whose certificate is in the folder
    `identity`. Delivery is exactly once for read_committed consumers, whenever and however the process ends
    (`capture.session.Session`).
    """
    topology = load_topology(file, "capture")
    source = choose(topology, source_name)
    if source.agent is not None:
        raise UsageError(f"source {source.name} is captured by agents of a fleet", "tailorbird fleet source list")
    if begin:
        check_begin(source, begin)
    log_lines("json")
    stop = stop_event()
    reports = _reports(topology, source)
    send_metrics(topology.name, f"capture {source.name}")
    with (
        announced(topology.name, f"capture {source.name}", metrics_port),
        lineage_run(topology.name, "CAPTURE", source.name, lambda: datasets_of(topology, source, {})) as lineage,
    ):
        if metrics_port:
            serve_operation(metrics_port, reports.verdict)
            if source.poll is None:
                reports.watch(log_end(source), stop)
        if gateways:
            # imported here, because gRPC costs a quarter of a second
            from ingest.gateway_client.grpc_stream import Credentials, Gateways

            streams = Gateways(gateways, Credentials.of(Path(identity)))
            log: Destination = ThroughGateway(streams.stream, source.name)
        else:
            log = IntoKafka(topology, source)
        capture(
            topology, source, log=log, stopped=stop.is_set, wait=stop.wait, reports=reports, begin=begin,
            lineage=lineage,
        )  # fmt: skip


def _reports(topology: Topology, source: Source) -> Reports:
    return Reports(topology.name, source, structlog.get_logger().bind(topology=topology.name, source=source.name))


def tables_of(source: Source) -> Callable[[ServerTables], Tables]:
    """Return a function that creates the `Tables` of a source from the tables on its server, with the source's
    filters."""

    def captured(database: str, table: str) -> bool:
        return source.captures(TableId(source=source.name, database=database, table=table))

    def make(seen: ServerTables) -> Tables:
        charset = seen.catalog.default_charset
        return Tables(
            source.name, source.databases, captured, seen.dialect, charset, source.rule_of, source.tables, seen.kinds,
            seen.left_out, restriction_of(source), source.merged,
        )  # fmt: skip

    return make


def phases_of(source: Source) -> ExactPhases:
    """Return the exact phases of a source's tables, before a checkpoint is loaded. Only logs of MySQL and MariaDB have
    them, because their images are complete, and only if rows that foreign keys change are repaired."""
    if source.type not in ("mysql", "mariadb") or source.cascades != "follow" or source.delivery != "exactly_once":
        return ExactPhases()
    return ExactPhases(lambda table: images_of(source.rule_of(table), source.unrepresentable))


class Destination(Protocol):
    """The place to which a capture writes: Kafka or a gateway. `open` connects once per session; it may raise
    Retriable."""

    def open(self) -> tuple[OpenLog, ClosableSignals]: ...


@dataclass(frozen=True, slots=True)
class IntoKafka:
    """A destination that writes directly to Kafka."""

    topology: Topology
    source: Source

    def open(self) -> tuple[OpenLog, ClosableSignals]:
        """Connect to Kafka, as in `Destination`. Raises UsageError if Kafka denies something that a capture needs."""
        check_grants(self.topology, "capture")
        topics = make_topics(self.topology, self.source)
        return KafkaLog(self.topology, self.source, topics), KafkaSignals(self.topology, self.source.name)


@dataclass(frozen=True, slots=True)
class ThroughGateway:
    """A destination that sends records to a gateway, which writes them to Kafka."""

    stream: Callable[[], SessionChannels]
    source: str

    def open(self) -> tuple[OpenLog, ClosableSignals]:
        """Use the stream to the gateway, as in `Destination`."""
        from ingest.gateway_client.gateway_log import GatewayLog  # imported here, because gRPC is slow to load

        log = GatewayLog(self.stream(), self.source)
        return log, log


def capture(
    topology: Topology,
    source: Source,
    *,
    log: Destination | None = None,
    stopped: Callable[[], bool],
    wait: Callable[[float], object],
    reports: Reports | None = None,
    begin: str = "",
    lineage: LineageRun | None = None,
) -> None:
    """Run one capture session after another until `stopped` returns True. After a Retriable error, wait and start
    again.

    `wait` sleeps the given seconds, or less if stopped. `log` is where to write; the default is Kafka. `lineage`
    receives the tables and their columns.
    """
    reports, log = reports or _reports(topology, source), log or IntoKafka(topology, source)
    pause, tracer = 0.0, tracer_of(topology.name, f"capture {source.name}")
    while not stopped():
        try:
            opened, found = log.open()
            if tracer is not None:
                opened = TracedLog(opened, source.name, tracer, time.time_ns)
            if lineage is not None:
                opened = SchemasLog(opened, topology.name, source.name, partial(_report, lineage, topology, source))
            # an agent's policy has already checked the conditions of its signals
            checked = CheckedSignals(signals=found, source=source, observer=reports)
            signals = checked if source.conditions is None else found
            try:
                if source.poll is not None:
                    from ingest.poll.run_poll import poll

                    poll(
                        topology, source, source.poll, opened,
                        observer=reports, stopped=stopped, wait=wait, signals=signals,
                        progress=reports.polling,
                    )  # fmt: skip
                else:
                    _follow_log(topology, source, opened, signals, reports, stopped, begin)
            finally:
                signals.close()
                opened.close()
        except Retriable as error:
            pause = error.retry_after if reports.progressed else min(max(2 * pause, error.retry_after), _LONGEST_WAIT)
            reports.progressed = False
            RESTARTS.labels(source.name).inc()
            reports.waiting(str(error), pause)
            wait(pause)
    reports.stopped()


def _report(lineage: LineageRun, topology: Topology, source: Source, schemas: Mapping[TableId, TableSchema]) -> None:
    lineage.reads_and_writes(lambda: datasets_of(topology, source, schemas))


def _follow_log(
    topology: Topology,
    source: Source,
    log: OpenLog,
    signals: Signals,
    reports: Reports,
    stopped: Callable[[], bool],
    begin: str,
) -> None:
    Session(
        source=server_of(topology.name, source),
        log=log,
        recorder=Recorder(topology.name, source.type, log.ensure_topic, source.unrepresentable, phases_of(source)),
        tables=tables_of(source),
        mode=source.snapshot_mode,
        clock=time.time,
        pause=time.sleep,
        stopped=stopped,
        observer=reports,
        position_lost=source.position_lost,
        cascades=source.cascades if source.type in ("mysql", "mariadb") else "ignore",
        dumps=source.dumps,
        rereads=not source.is_only_reported,
        signals=signals,
        parallel=source.snapshot_max_threads,
        limits=Limits(heartbeat=source.heartbeat_interval_ms / 1000),
        start=partial(log_start, source, begin, stopped) if begin else None,
    ).run()
