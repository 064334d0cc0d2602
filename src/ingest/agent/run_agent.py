"""`tailorbird agent`: the process on a database's host. It dials gateways and listens on no port of its own."""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import structlog

from cdc.grammar.keys import empty_mapping
from cdc.lifetime.proc_signals import set_by, stop_event
from cdc.model.errors import TailorbirdError, UsageError
from cdc.model.escapes import meanings
from cdc.model.event import Position
from cdc.model.identifiers import fold_table
from cdc.model.schema import TableId
from cdc.otel.http_metrics import send_metrics
from cdc.process.http_operation import serve_operation
from cdc.process.proc_log_lines import log_lines
from cdc.process.verdict import HealthVerdict
from cdc.topology.reader_servers import read_hbase, read_log, read_solr
from cdc.topology.topology import Topology
from ingest.agent.allowance import Allowance
from ingest.agent.catalogs import seen
from ingest.agent.file_policy import PolicyFile
from ingest.agent.grpc_agent import FleetAgent
from ingest.agent.grpc_tasks import Task
from ingest.agent.policy import AgentLimits, Policy, refused_signal
from ingest.capture.signals import ClosableSignals, Signal
from ingest.fleet.certificate import certified
from ingest.fleet.fleet_pb2 import APPLIED, APPLYING, FAILED
from ingest.gateway_client.grpc_stream import Credentials, Gateways, ReceiveLimits
from ingest.records.capture_interfaces import Checkpoint, OpenLog
from ingest.report.http_reports import Reports
from ingest.run_capture import Destination, ThroughGateway, capture

_EVER = 1e9  # seconds
_POLICY_EVERY = 1.0  # seconds between looks at the policy's file
_POLICY_AGAIN = 10.0  # seconds until a policy is read again after an error, or applied again after an internal one
_NAMED = 3  # at most this many tables in a reason
_TABLES = 100  # at most this many tables in a report of snapshots
_MOVING_EVERY, _READING_EVERY = 10.0, 1.0  # seconds between reports of a source's position

log = structlog.get_logger()


def run(gateways: Sequence[str], identity: str, policy_file: str, *, metrics_port: int = 0) -> None:
    """Capture what one of `gateways` (host:port) assigns, until SIGTERM or SIGINT.

    The folder `identity` contains the certificate or token of the agent. Raises UsageError or TopologyError if the
    policy or the credentials cannot be read. An unavailable gateway is dialled again. Delivery to Kafka is exactly
    once, whenever and however the process ends. A policy that changes, or SIGHUP, is applied without a restart.
    """
    if not gateways:
        raise UsageError("no gateway to dial", "pass --gateway HOST:PORT, once per gateway")
    file = PolicyFile(policy_file)
    policy = file.policy
    credentials = Credentials.of(Path(identity))
    credentials.channel()
    name = _named(credentials) if credentials.token is None else Path(identity).name
    log_lines("json")
    stop = stop_event()
    again = set_by(signal.SIGHUP)
    agent = FleetAgent(name, policy, captured, seen)
    streams = Gateways(
        gateways, credentials, opened=agent.opened, commanded=agent.commanded, limits=_received(policy.limits)
    )
    watch = PolicyWatch(file, agent, streams)
    send_metrics("fleet", f"agent {name}")
    if metrics_port:
        serve_operation(metrics_port, lambda: _judgement(agent, watch))
    threading.Thread(target=watch.run, args=(stop, again), name="policy", daemon=True).start()
    log.info("agent started", agent=name, connections=", ".join(policy.connections))
    try:
        agent.attend(streams, stop)
    finally:
        streams.close()
    log.info("agent stopped", agent=name)


def _received(limits: AgentLimits) -> ReceiveLimits:
    return ReceiveLimits(answer_bytes=limits.answer_bytes, rate=limits.receive_rate)


class PolicyWatch:
    """Applies the policy whenever its file has changed. No error ends it.

    `error` is why the present policy is not, or not completely, applied; empty if it is.
    """

    def __init__(self, file: PolicyFile, agent: FleetAgent, streams: Gateways) -> None:
        self._file, self._agent, self._streams = file, agent, streams
        self._internal, self._retry_at = "", math.inf
        self._logged, self._read_at = "", 0.0  # the error of the last read; when a file with an error is read again

    @property
    def error(self) -> str:
        """Return what `/health` says; empty if all is well."""
        if self._internal:
            return f"the policy is not completely applied: {self._internal}"
        return f"the previous policy applies: {self._file.error}" if self._file.error else ""

    def run(self, stop: threading.Event, again: threading.Event) -> None:
        """Look at the file until `stop`. With `again` (SIGHUP), read it at the next look."""
        while not stop.wait(_POLICY_EVERY):
            now = again.is_set()
            again.clear()
            self.look(now=now)

    def look(self, *, now: bool = False) -> None:
        """Apply the policy if it has changed, or if an error prevented that before."""
        try:
            policy = self._changed(now=now)
            if policy is None and time.monotonic() >= self._retry_at:
                policy = self._file.policy
            if policy is None:
                return
            self._retry_at = time.monotonic() + _POLICY_AGAIN
            self._streams.limits = _received(policy.limits)
            self._agent.reload(policy)
            self._internal, self._retry_at = "", math.inf
            log.info("policy applied", connections=", ".join(policy.connections))
        except Exception as error:
            self._internal = f"internal error {type(error).__name__}: see the agent's log"
            self._retry_at = min(self._retry_at, time.monotonic() + _POLICY_AGAIN)
            with suppress(Exception):  # the log may be what fails
                log.exception("cannot apply the policy: it is tried again")

    def _changed(self, *, now: bool) -> Policy | None:
        """Return the policy if it has changed. One that could not be read is read again: its disk may have failed."""
        again = self._file.error != "" and time.monotonic() >= self._read_at
        try:
            policy = self._file.changed(now=now, again=again)
        except TailorbirdError as error:
            self._read_at = time.monotonic() + _POLICY_AGAIN
            if str(error) != self._logged:
                log.error("the policy cannot be read: the previous one applies", why=str(error))
            self._logged = str(error)
            return None
        self._logged = self._file.error
        return policy


def captured(task: Task) -> None:
    """Capture a source until its task is stopped. Raises errors after which no retry helps."""
    destination = PolicyDestination(ThroughGateway(task.channels, task.source.name), task)
    capture(
        _topology(task.topology), task.source, log=destination, stopped=task.stopped.is_set, wait=task.stopped.wait,
        reports=TaskReports(task),
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class PolicyDestination:
    """A destination whose signals are filtered by the host's policy."""

    through: Destination
    task: Task

    def open(self) -> tuple[OpenLog, ClosableSignals]:
        """Implements `Destination.open`."""
        opened, signals = self.through.open()
        return opened, PolicySignals(signals, self.task, Allowance(self.task.policy.limits.signals_per_minute))


@dataclass(frozen=True, slots=True)
class PolicySignals:
    """Signals that the policy of the host allows. Others are logged and reported to the gateway."""

    signals: ClosableSignals
    task: Task
    allowance: Allowance

    def read(self, start: int | None) -> tuple[list[Signal], int | None]:
        """Return the signals since an offset (None: only new ones), and the next offset. Implements `Signals`."""
        found, following = self.signals.read(start)
        return [one for one in found if self._is_allowed(one)], following

    def close(self) -> None:
        """Close the connection."""
        self.signals.close()

    def _is_allowed(self, one: Signal) -> bool:
        task = self.task
        if not self.allowance.take(time.monotonic()):
            most = f"more than {self.allowance.per_minute} signals per minute (signals_per_minute in the policy)"
            task.reported.now(APPLIED, f"a signal was refused: {most}")
            return False
        meant = [(name, table) for name in one.tables for table in _meant(task, name)]
        tables = tuple(table for _, table in meant)
        why = refused_signal(task.policy, task.local, task.source, one.type, tables)
        for name, table in meant:
            where = one.filters.get(name, "")
            if where and task.source.conditions is not None and not why:
                try:
                    task.source.conditions(table, where)
                except UsageError as error:
                    why = str(error)
        if why:
            log.warning("signal refused", source=task.source.name, type=one.type, tables=one.tables, why=why)
            task.reported.now(APPLIED, f"{one.type} was refused: {why}")
        return not why


def _meant(task: Task, name: str) -> list[TableId]:
    """Return the captured tables that `database.table` may mean; names may contain dots, and a server may fold
    them."""
    source = task.source
    found = [TableId(source=source.name, database=d, table=t) for d, t in meanings(name, "") if d]
    folded = {fold_table(table) for table in found}
    policed = (
        TableId(source=source.name, database=database, table=table)
        for database, one in task.local.databases.items()
        for table in one.tables
    )
    alike = (table for table in (*source.tables, *source.rules, *policed) if fold_table(table) in folded)
    return [table for table in dict.fromkeys((*found, *alike)) if source.captures(table)]


class TaskReports(Reports):
    """Reports of a session to metrics and logs, which it also sends to the gateway."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._position: dict[str, object] = {}
        self._reading: dict[str, int] = {}  # rows read so far, of tables whose snapshot runs
        self._read: dict[str, int] = {}  # number of rows of tables whose snapshot ended in this session
        self._lag_ms = 0
        super().__init__(task.topology, task.source, structlog.get_logger().bind(source=task.source.name))

    def resumed(self, position: Position) -> None:
        """Report that the session follows its log."""
        super().resumed(position)
        self._at(position)
        self._task.reported.now(APPLIED, self._reason())

    def committed(self, checkpoint: Checkpoint) -> None:
        """Report the committed position."""
        super().committed(checkpoint)
        going = checkpoint.state.get("snapshots", {})
        ended = [table for table in self._reading if table not in going]
        for table in ended:
            self._read[table] = self._reading.pop(table)
        self._at(checkpoint.position, _MOVING_EVERY if not ended else 0.0)

    def snapshot(self, rows: Mapping[str, int]) -> None:
        """Report the progress of snapshots: the tables that were read since the last call."""
        super().snapshot(rows)
        self._reading |= rows
        self._report(_READING_EVERY)

    def waits(self, tables: Mapping[str, str]) -> None:
        """Report the tables whose rows cannot be read, and one of the reasons."""
        before = self._waits
        super().waits(tables)
        if before != self._waits:
            self._task.reported.now(APPLIED, self._reason())

    def _reason(self) -> str:
        waits = dict(self._waits)
        what = f"not read: {', '.join(islice(waits, _NAMED))}" + (", …" if len(waits) > _NAMED else "")
        texts = [f"{what}: {next(iter(waits.values()))}"] if waits else []
        return "; ".join([*texts, *filter(None, [self._task.restrictions])])

    def lag(self, seconds: float) -> None:
        """Store the lag for the next report."""
        super().lag(seconds)
        # before the first commit, the lag counts from 1970
        self._lag_ms = int(seconds * 1000) if seconds < _EVER else 0

    def waiting(self, why: str, seconds: float) -> None:
        """Report that a server or the gateway is unavailable."""
        super().waiting(why, seconds)
        self._task.reported.now(APPLYING, f"waiting: {why}")

    def _at(self, at: Position, every: float = _MOVING_EVERY) -> None:
        self._position = {"file": at.file, "pos": at.pos, "gtid_set": at.gtid_set, "sequence": at.sequence}
        self._report(min(every, _READING_EVERY) if self._reading else every)

    def _report(self, every: float) -> None:
        tables = {
            "reading": dict(islice(self._reading.items(), _TABLES)),
            "read": dict(islice(reversed(self._read.items()), _TABLES)),
        }
        self._task.reported.at({**self._position, "lag_ms": self._lag_ms, **tables}, every=every)


def _judgement(agent: FleetAgent, watch: PolicyWatch) -> tuple[HealthVerdict, dict[str, object]]:
    """Return the agent's health: it is healthy while its policy is valid and every assigned source is captured."""
    if watch.error:
        return HealthVerdict(status="stuck", reason=watch.error), {}
    reports = agent.reports
    for source, one in reports.items():
        if one.progress == FAILED:
            return HealthVerdict(status="stuck", reason=f"source {source}: {one.reason}"), {}
        if one.progress == APPLYING and one.reason:
            return HealthVerdict(status="away", reason=f"source {source}: {one.reason}"), {}
    return HealthVerdict(status="moving", reason=f"{len(reports)} sources"), {"sources": sorted(reports)}


def _topology(name: str) -> Topology:
    """Return a topology with only those settings that a session needs."""
    nothing = empty_mapping()
    return Topology(
        name=name,
        file="",
        sources={},
        log=read_log(nothing),
        hbase=read_hbase(nothing),
        solr=read_solr(nothing),
        tables={},
        indexes={},
        dashboards={},
    )


def _named(credentials: Credentials) -> str:
    file = credentials.certificate
    try:
        who = certified(file.read_bytes()).who
    except ValueError as error:
        raise UsageError(f"{file} is not a certificate of a fleet", "tailorbird fleet ca issue agent NAME") from error
    if who is None or who.role != "agents":
        raise UsageError(f"{file} is not the certificate of an agent", "tailorbird fleet ca issue agent NAME")
    return who.name
