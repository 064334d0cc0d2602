"""Run the capture sessions that a gateway assigns to this agent, within the policy of the host.

Each source has a thread, which captures until the gateway withdraws the source, or assigns it with another lease or
configuration. If the policy refuses a new configuration, the previous one continues and the gateway receives the
reason.
"""

from __future__ import annotations

import random
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Protocol

import orjson
import structlog

from cdc.model.errors import Retriable, TailorbirdError, UsageError
from ingest.agent.allowance import Allowance
from ingest.agent.grpc_tasks import Capture, Decision, SourceTask, Task, TaskReport, sharing
from ingest.agent.policy import LocalConnection, NarrowedSource, Policy, narrowed
from ingest.fleet.catalog import DatabaseSeen, packed
from ingest.fleet.desired import SourceSpec, source_of, spec_of
from ingest.fleet.fleet_pb2 import (
    APPLIED,
    APPLYING,
    FAILED,
    Assign,
    LogReply,
    MapPart,
    MapPlace,
    Ready,
    Report,
    StreamRequest,
)
from ingest.fleet.reported import effective_hash
from ingest.fleet.request_types import catalog_key, no_capture_reason
from ingest.gateway_client.grpc_channel import SessionChannel
from ingest.gateway_client.grpc_stream import GrpcStream

AGAIN = 30.0  # seconds until a session that failed is tried again
_LONGEST = 30.0  # seconds between attempts to dial
_MAP_EVERY, _MAP_WHOLE, _PLACE_EVERY = 60.0, 1800.0, 60.0  # seconds
_PIECE = 512 * 1024  # bytes

log = structlog.get_logger()


class Streams(Protocol):
    """The agent's connection to its gateways. `stream` dials again after a stream ended, and raises Retriable if that
    fails."""

    def stream(self) -> GrpcStream: ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class LeasedChannels:
    """A stream whose session channels use the epoch of one lease; implements `gateway_log.SessionChannels`."""

    stream: GrpcStream
    epoch: int

    def channel(self, source: str, unasked: Callable[[LogReply], None]) -> SessionChannel:
        """Open a session channel for a source. Implements `SessionChannels`."""
        return self.stream.channel(source, unasked, self.epoch)

    def leave(self, channel: SessionChannel) -> None:
        """Drop a session channel, so that later replies to it are ignored. Implements `SessionChannels`."""
        self.stream.leave(channel)


class FleetAgent:
    """Runs the sources that the gateway assigns to this agent.

    `catalog_seen` reads the tables of a connection. `capture` runs the sessions of one source until it is stopped.
    """

    def __init__(
        self,
        name: str,
        policy: Policy,
        capture: Capture,
        catalog_seen: Callable[[LocalConnection, str], Iterator[DatabaseSeen]],
    ) -> None:
        self._name, self._policy, self._capture, self._catalog_seen = name, policy, capture, catalog_seen
        self._streams: Streams | None = None
        self._stream: GrpcStream | None = None
        self._source_tasks: dict[str, SourceTask] = {}
        self._threads: dict[str, threading.Thread] = {}  # the last session of each source, which may still run
        self._mapped: dict[tuple[str, str], bytes] = {}
        self._map_due = self._map_whole = 0.0
        self._lock = threading.Lock()
        self._assignments = Allowance(policy.limits.assignments_per_minute)
        # No other process has this key, not even the gateway, which knows an agent's token. So a hash reveals nothing
        # of the policy, and only shows whether two configurations of this process are equal.
        self._key = secrets.token_bytes(32)

    def attend(self, streams: Streams, stopped: threading.Event) -> None:
        """Keep a stream to a gateway open and report the catalog until `stopped`; then end all sessions.

        Raises UsageError if the credentials cannot be read.
        """
        self._streams, pause, sent_at = streams, 0.0, time.monotonic()
        try:
            while not stopped.is_set():
                try:
                    stream = streams.stream()
                    pause = 0.0
                    self._map(stream)
                    if time.monotonic() - sent_at > _PLACE_EVERY:
                        sent_at = time.monotonic()
                        for source_task in list(self._source_tasks.values()):
                            self._report(source_task.reported.report)
                except Retriable as error:
                    pause = min(max(2 * pause, error.retry_after), _LONGEST)
                    log.warning("waiting", why=str(error), seconds=round(pause, 1))
                    stopped.wait(pause * random.uniform(0.5, 1.0))
                stopped.wait(1.0)
        finally:
            self._end_all()

    def opened(self, stream: GrpcStream) -> None:
        """Announce the agent and its running sources on a new stream.

        A lease may have ended before. Its session continues until the gateway withdraws the source.
        """
        self._stream = stream
        stream.report(StreamRequest(ready=self._announced()))
        for source_task in list(self._source_tasks.values()):
            stream.report(StreamRequest(report=source_task.reported.report))
        self._mapped.clear()
        self._map_due = 0.0

    def commanded(self, request: StreamRequest) -> None:
        """Handle a command of the gateway. The stream's reader calls this in order, so it must not block."""
        with self._lock:
            if request.HasField("assign"):
                assign = request.assign
                try:
                    self._assigned(request.type, assign)
                except UsageError as error:
                    log.warning("refused", source=assign.source[:80], version=assign.version, why=str(error))
                    self._refuse(assign, str(error))
                # report it to the gateway: as an exception it would end this stream and every later one
                except Exception as error:
                    log.exception("cannot handle the assignment", source=assign.source, version=assign.version)
                    self._refuse(assign, f"internal error {type(error).__name__}: see the agent's log")
            elif request.HasField("withdraw"):
                source_task = self._source_tasks.get(request.withdraw.source)
                if source_task is not None and source_task.epoch <= request.withdraw.epoch:
                    log.info("withdrawn", source=request.withdraw.source, why=request.withdraw.why)
                    self._source_tasks.pop(request.withdraw.source).stopped.set()

    def _refuse(self, assign: Assign, reason: str) -> None:
        self._report(
            Report(
                source=assign.source, epoch=assign.epoch, version=assign.version, progress=FAILED, reason=reason
            )
        )  # fmt: skip

    @property
    def reports(self) -> dict[str, Report]:
        """Return the last report of each source."""
        return {source: source_task.reported.report for source, source_task in list(self._source_tasks.items())}

    def reload(self, policy: Policy) -> None:
        """Replace the policy. Sessions whose connection, restrictions or limits changed are restarted, and those that
        the policy refuses end.

        Assignments that the previous policy refused are tried again. If the databases or labels changed, the stream
        ends, because the agent announces them at the begin of a stream. `sources` in the limits applies to new sources
        only. An error stops the source that it concerns, and is raised when all other sources follow the policy.
        """
        failed: Exception | None = None
        with self._lock:
            announced = self._announced()
            self._policy, self._assignments = policy, Allowance(policy.limits.assignments_per_minute)
            # first stop all: no report, log line or other source may delay the end of what the policy forbids
            tasks = list(self._source_tasks.items())
            decisions = [(source, before, self._reconsidered(before)) for source, before in tasks]
            for source, before, decision in decisions:
                newer = before.newer
                try:
                    self._apply(decision, before, keeps=False)
                    if newer is not None:
                        self._apply(self._decided(*newer), self._source_tasks[source], keeps=True)
                except Exception as error:
                    failed = error
                    self._fail(self._source_tasks[source], newer, error)
                    with suppress(Exception):  # the log may be what fails
                        log.exception("cannot apply the policy", source=source)
            self._mapped.clear()
            self._map_due = 0.0
        if self._stream is not None and self._announced() != announced:
            self._stream.close()
        if failed is not None:
            raise failed

    def _reconsidered(self, before: SourceTask) -> Decision:
        """Return what the present policy makes of an assigned source. If it is not the same, the session is stopped."""
        try:
            decision = self._decided(*before.assigned)
        except Exception as error:  # noqa: BLE001  # `reload` raises it; until then nothing of the source is sent
            before.stopped.set()
            return Decision(self._new_task(*before.assigned), error=error)
        if not decision.is_same(before):
            before.stopped.set()
        return decision

    def _fail(self, source_task: SourceTask, newer: tuple[int, Assign] | None, error: Exception) -> None:
        """Stop a source, and report an internal error of it. The next `reload` tries it again."""
        source_task.newer = newer
        source_task.stopped.set()
        with suppress(Exception):  # the report may be what fails
            source_task.reported.now(FAILED, f"internal error {type(error).__name__}: see the agent's log")

    def _announced(self) -> Ready:
        places = [
            MapPlace(connection=local.alias, database=database)
            for local in self._policy.connections.values()
            for database in local.databases
        ]
        return Ready(labels=dict(self._policy.labels), places=places)

    def _assigned(self, key: int, assign: Assign) -> None:
        before = self._source_tasks.get(assign.source)
        if before is not None and (before.epoch, before.version) == (assign.epoch, assign.version):
            return
        self._check_limits(assign, before)
        log.info("assigned", source=assign.source, epoch=assign.epoch, version=assign.version)
        self._apply(self._decided(key, assign), before, keeps=True)

    def _new_task(self, key: int, assign: Assign) -> SourceTask:
        report = Report(source=assign.source, epoch=assign.epoch, version=assign.version, progress=APPLYING)
        return SourceTask((key, assign), assign.epoch, assign.version, TaskReport(report, self._report))

    def _decided(self, key: int, assign: Assign) -> Decision:
        """Return what the policy makes of an assignment, without any effect."""
        source_task = self._new_task(key, assign)
        try:
            spec = spec_of(orjson.loads(assign.spec), assign.topology, assign.source)
            runs = self.narrowed(spec, assign.topology, assign.source)
            if why := no_capture_reason(key, runs.source.type):
                raise UsageError(why, "update the agent, or use a connection of that kind")
        except (TailorbirdError, ValueError) as error:
            return Decision(source_task, refused=str(error))
        source_task.runs, report = runs, source_task.reported.report
        report.hash = effective_hash(runs.source, self._key, runs.accepted)
        report.narrowed = bool(runs.restrictions)
        return Decision(source_task, spec)

    def _apply(self, decision: Decision, before: SourceTask | None, *, keeps: bool) -> None:
        """Capture an assignment within the policy. `keeps`: if it is refused, a previous one of its lease continues."""
        source_task = decision.task
        assigned, assign = source_task.assigned, source_task.assigned[1]
        if decision.error is not None:
            raise decision.error
        if keeps and before is not None and decision.keeps(before):
            before.version, before.newer = assign.version, assigned
            before.reported.refuse(assign.version, f"{decision.refused}; the previous configuration keeps running")
            log.warning("refused", source=assign.source, version=assign.version, why=decision.refused)
            return
        if before is not None and decision.is_same(before):
            before.version, before.assigned, before.newer = assign.version, assigned, None
            before.reported.accept(assign.version)
            return
        if before is not None:
            before.stopped.set()
        self._source_tasks[assign.source] = source_task
        if decision.spec is None:
            source_task.reported.now(FAILED, decision.refused)
            log.warning("refused", source=assign.source, version=assign.version, why=decision.refused)
            return
        self._report(source_task.reported.report)
        self._start(assign, decision.spec, source_task)

    def _check_limits(self, assign: Assign, before: SourceTask | None) -> None:
        """Raise UsageError if a limit of the policy forbids to handle one more assignment."""
        limits, hint = self._policy.limits, "raise the limit in the agent's policy, or use another agent"
        if before is None and len(self._source_tasks) >= limits.sources:
            raise UsageError(f"source {assign.source[:80]}: the agent already has {limits.sources} sources", hint)
        if not self._assignments.take(time.monotonic()):
            most = f"{limits.assignments_per_minute} assignments per minute"
            raise UsageError(f"source {assign.source[:80]}: more than {most}", hint)

    def narrowed(self, spec: SourceSpec, topology: str, name: str) -> NarrowedSource:
        """Return a configuration as the policy restricts it. Raises UsageError if it names data that must not leave the
        host."""
        from ingest.records.conditions import condition  # slow to import

        return narrowed(self._policy, spec, source_of(spec, topology, name), condition)

    def _start(self, assign: Assign, spec: SourceSpec, source_task: SourceTask) -> None:
        assert source_task.runs is not None, "a refused configuration is never started"
        runs = source_task.runs
        if not spec.captures:
            source_task.reported.now(APPLIED, "no table is captured yet")
            return
        local = self._policy.connections[spec.connection]
        source = replace(runs.source, sharing=lambda: sharing(dict(self._source_tasks), runs))
        task = Task(
            assign.topology, self._policy, local, source, "; ".join(runs.restrictions),
            lambda: self._channels(source_task.epoch),
            source_task.stopped, source_task.reported,
        )  # fmt: skip
        arguments = (task, self._threads.get(assign.source))
        name = f"capture {assign.source}"
        thread = threading.Thread(target=self._run, args=arguments, name=name, daemon=True)
        thread.start()
        running = {source: one for source, one in self._threads.items() if one.is_alive()}
        self._threads = running | {assign.source: thread}
        source_task.thread = thread

    def _run(self, task: Task, before: threading.Thread | None) -> None:
        if before is not None:
            before.join()  # a source must not have two sessions at a time
        while not task.stopped.is_set():
            try:
                self._capture(task)
            except TailorbirdError as error:
                log.error("failed", source=task.source.name, why=str(error))
                task.reported.now(FAILED, str(error))
            except Exception as error:  # report it and try again, so that the source does not remain without a session
                log.exception("failed: internal error", source=task.source.name)
                # log the message only here, because it may contain values that must not leave the host
                task.reported.now(FAILED, f"internal error {type(error).__name__}: see the agent's log")
            task.stopped.wait(AGAIN)

    def _channels(self, epoch: int) -> LeasedChannels:
        assert self._streams is not None, "sessions begin after the first stream was opened"
        return LeasedChannels(self._streams.stream(), epoch)

    def _end_all(self) -> None:
        with self._lock:
            for source_task in self._source_tasks.values():
                source_task.stopped.set()
            threads = list(self._threads.values())
        for thread in threads:
            thread.join(30.0)

    def _report(self, report: Report) -> None:
        self._send_report(StreamRequest(report=report))

    def _send_report(self, request: StreamRequest) -> None:
        if self._stream is not None:
            with suppress(Retriable):  # no need to retry: the next stream begins with the reports of all sources
                self._stream.report(request)

    def _map(self, stream: GrpcStream) -> None:
        if time.monotonic() < self._map_due:
            return
        now = time.monotonic()
        self._map_due = now + _MAP_EVERY
        if now - self._map_whole > _MAP_WHOLE:  # send all of it again: Kafka may have been unavailable the last time
            self._map_whole = now
            self._mapped.clear()
        for local in self._policy.connections.values():
            if not stream.accepts_catalog(catalog_key(local.type)):
                log.warning("the gateway is older, and refuses this catalog: update it", connection=local.alias)
                continue
            try:
                for seen in self._catalog_seen(local, self._name):
                    self._report_map(stream, local, seen)
            except TailorbirdError as error:
                log.warning("cannot read the catalog", connection=local.alias, why=str(error))
            except Exception:  # log it only: capture continues, and the next turn tries again
                log.exception("cannot read the catalog", connection=local.alias)

    def _report_map(self, stream: GrpcStream, local: LocalConnection, seen: DatabaseSeen) -> None:
        """Send the catalog of a database if it changed since the last time."""
        content, place = packed(seen), (local.alias, seen.database)
        if self._mapped.get(place) == content:
            return
        for at in range(0, len(content), _PIECE):
            part = MapPart(connection=local.alias, database=seen.database, content=content[at : at + _PIECE])
            part.last = at + _PIECE >= len(content)
            stream.report(StreamRequest(type=catalog_key(local.type), map_part=part))
        self._mapped[place] = content
