"""An agent as its gateway commands it: sessions of the sources that it was given, as far as its host's policy goes.

Each source has a thread, which captures until it is told to stop, or to begin anew: under another lease, or by another
configuration. What the policy refuses does not run; what ran before goes on, and the gateway is told why.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

import orjson
import structlog

from cdc.model.errors import Retriable, TailorbirdError
from cdc.topology.topology import Source
from ingest.agent.conditions import condition
from ingest.agent.policy import LocalConnection, Narrowed, Policy, narrowed
from ingest.fleet.catalog import DatabaseSeen, packed
from ingest.fleet.desired import SourceSpec, source_of, spec_of
from ingest.fleet.fleet_pb2 import (
    APPLIED,
    APPLYING,
    FAILED,
    Assign,
    Control_Map,
    Control_Report,
    LogReply,
    MapPart,
    MapPlace,
    Progress,
    Ready,
    Report,
    StreamRequest,
)
from ingest.fleet.reported import effective_hash
from ingest.gateway_client.grpc_channel import SessionChannel
from ingest.gateway_client.grpc_stream import GrpcStream

AGAIN = 30.0  # seconds until a session that failed is tried again
_LONGEST = 30.0  # seconds between attempts to dial
_MAP_EVERY, _MAP_WHOLE, _PLACE_EVERY = 60.0, 1800.0, 60.0  # seconds
_PIECE = 512 * 1024  # bytes
_REASON = 2000  # characters

log = structlog.get_logger()


class Streams(Protocol):
    """The stream to a gateway, dialled anew where it has ended; Retriable where none is there."""

    def stream(self) -> GrpcStream: ...

    def close(self) -> None: ...


@dataclass(slots=True)
class TaskReport:
    """What is told of a source: how far its session is; or why a version is refused, while what ran before goes on."""

    report: Report
    say: Callable[[Report], None]
    session: tuple[Progress, str] = (APPLYING, "")
    refused: str = ""
    said: float = 0.0  # when, by the monotonic clock

    def now(self, progress: Progress, reason: str = "") -> None:
        """How far the session is; said where it is news."""
        self.session = progress, reason
        self._send_report()

    def refuse(self, version: int, why: str) -> None:
        """A further version may not run."""
        self.report.version, self.refused = version, why
        self._send_report()

    def accept(self, version: int) -> None:
        """A further version is what runs already."""
        self.report.version, self.refused = version, ""
        self._send_report(again=True)

    def at(self, position: Mapping[str, Any], *, every: float) -> None:
        """Where it is; said where nothing was said for so many seconds."""
        self.report.position = orjson.dumps(position)
        if time.monotonic() - self.said >= every:
            self._send_report(again=True)

    def _send_report(self, *, again: bool = False) -> None:
        progress, reason = (FAILED, self.refused) if self.refused else self.session
        if again or (progress, reason[:_REASON]) != (self.report.progress, self.report.reason):
            self.report.progress, self.report.reason = progress, reason[:_REASON]
            self.said = time.monotonic()
            self.say(self.report)


@dataclass(frozen=True, slots=True)
class Task:
    """One source to capture until `stopped`; `channels` carry it under its lease, `taken` is what the policy took
    away.
    """

    topology: str
    policy: Policy
    local: LocalConnection
    source: Source
    taken: str
    channels: Callable[[], LeasedChannels]
    stopped: threading.Event
    reported: TaskReport


Capture = Callable[[Task], None]  # returns when it was stopped; raises what ends a session for good


@dataclass(frozen=True, slots=True)
class LeasedChannels:
    """A stream whose lanes name the epoch of a lease; implements `gateway_log.SessionChannels`."""

    stream: GrpcStream
    epoch: int

    def channel(self, source: str, unasked: Callable[[LogReply], None]) -> SessionChannel:
        """See `gateway_log.SessionChannels`."""
        return self.stream.channel(source, unasked, self.epoch)

    def leave(self, channel: SessionChannel) -> None:
        """See `gateway_log.SessionChannels`."""
        self.stream.leave(channel)


@dataclass(slots=True)
class _SourceTask:
    """A source that the agent has, and the thread that captures it."""

    epoch: int
    version: int
    reported: TaskReport
    runs: Narrowed | None = None
    stopped: threading.Event = field(default_factory=threading.Event)
    thread: threading.Thread | None = None


class FleetAgent:
    """Of one process. `catalog_seen` reads what a connection shows; `capture` runs one session after another."""

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
        self._source_tasks: dict[str, _SourceTask] = {}
        self._ended = list[threading.Thread]()
        self._mapped: dict[tuple[str, str], bytes] = {}
        self._map_due = self._map_whole = 0.0
        self._lock = threading.Lock()

    def attend(self, streams: Streams, stopped: threading.Event) -> None:
        """Dial, obey, map, until `stopped`; then end all sessions. UsageError where it can not even dial."""
        self._streams, pause, said = streams, 0.0, time.monotonic()
        try:
            while not stopped.is_set():
                try:
                    stream = streams.stream()
                    pause = 0.0
                    self._map(stream)
                    if time.monotonic() - said > _PLACE_EVERY:
                        said = time.monotonic()
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
        """A new stream: say that we are there, and what runs. A lease of before may not hold any more: whoever has it
        goes on, and is told by the gateway.
        """
        self._stream = stream
        places = [
            MapPlace(connection=local.alias, database=database)
            for local in self._policy.connections.values()
            for database in local.databases
        ]
        stream.report(StreamRequest(ready=Ready(labels=dict(self._policy.labels), places=places)))
        for source_task in list(self._source_tasks.values()):
            stream.report(StreamRequest(type=Control_Report, report=source_task.reported.report))
        self._mapped.clear()
        self._map_due = 0.0

    def commanded(self, request: StreamRequest) -> None:
        """What the gateway says, in order; called by the stream's reader, so that nothing here waits."""
        with self._lock:
            if request.HasField("assign"):
                reported = request.assign
                try:
                    self._assigned(reported)
                except Exception as error:  # told; else the stream would end, and the next one too, of all sources
                    log.exception("not understood", source=reported.source, version=reported.version)
                    reason = f"{type(error).__name__}, a bug: look into the agent's log"
                    self._report(
                        Report(
                            source=reported.source, epoch=reported.epoch, version=reported.version, progress=FAILED,
                            reason=reason,
                        )
                    )  # fmt: skip
            elif request.HasField("withdraw"):
                source_task = self._source_tasks.get(request.withdraw.source)
                if source_task is not None and source_task.epoch <= request.withdraw.epoch:
                    log.info("withdrawn", source=request.withdraw.source, why=request.withdraw.why)
                    self._stop(self._source_tasks.pop(request.withdraw.source))

    @property
    def reports(self) -> dict[str, Report]:
        """What was last told of each source."""
        return {source: source_task.reported.report for source, source_task in list(self._source_tasks.items())}

    def _assigned(self, reported: Assign) -> None:
        before = self._source_tasks.get(reported.source)
        if before is not None and (before.epoch, before.version) == (reported.epoch, reported.version):
            return
        report = Report(source=reported.source, epoch=reported.epoch, version=reported.version, progress=APPLYING)
        source_task = _SourceTask(reported.epoch, reported.version, TaskReport(report, self._report))
        log.info("assigned", source=reported.source, epoch=reported.epoch, version=reported.version)
        try:
            spec = spec_of(orjson.loads(reported.spec), reported.topology, reported.source)
            source_task.runs = self.narrowed(spec, reported.topology, reported.source)
        except (TailorbirdError, ValueError) as error:
            log.warning("refused", source=reported.source, version=reported.version, why=str(error))
            if before is not None and before.runs is not None and before.epoch == reported.epoch:
                before.version = reported.version
                before.reported.refuse(reported.version, f"{error}; what ran before goes on")
                return
            self._source_tasks[reported.source] = source_task
            if before is not None:
                self._stop(before)
            source_task.reported.now(FAILED, str(error))
            return
        if (
            before is not None
            and before.runs == source_task.runs
            and before.epoch == reported.epoch
            and before.thread is not None
        ):
            before.version = reported.version  # the same in other words
            before.reported.accept(reported.version)
            return
        report.hash, report.narrowed = effective_hash(source_task.runs.source), bool(source_task.runs.taken)
        self._source_tasks[reported.source] = source_task
        if before is not None:
            self._stop(before)
        self._report(report)
        self._start(reported, spec, source_task, before)

    def narrowed(self, spec: SourceSpec, topology: str, name: str) -> Narrowed:
        """What the policy leaves of a configuration; UsageError where it names what may not leave."""
        return narrowed(self._policy, spec, source_of(spec, topology, name), condition)

    def _start(self, reported: Assign, spec: SourceSpec, source_task: _SourceTask, before: _SourceTask | None) -> None:
        assert source_task.runs is not None, "what is refused is not started"
        runs = source_task.runs
        if not spec.captures:
            source_task.reported.now(APPLIED, "no table is captured yet")
            return
        local = self._policy.connections[spec.connection]
        task = Task(
            reported.topology, self._policy, local, runs.source, "; ".join(runs.taken),
            lambda: self._channels(source_task.epoch),
            source_task.stopped, source_task.reported,
        )  # fmt: skip
        arguments = (task, before.thread if before is not None else None)
        name = f"capture {reported.source}"
        source_task.thread = threading.Thread(target=self._run, args=arguments, name=name, daemon=True)
        source_task.thread.start()

    def _run(self, task: Task, before: threading.Thread | None) -> None:
        if before is not None:
            before.join()  # one session of a source at a time
        while not task.stopped.is_set():
            try:
                self._capture(task)
            except TailorbirdError as error:
                log.error("failed", source=task.source.name, why=str(error))
                task.reported.now(FAILED, str(error))
            except Exception as error:  # told, and begun anew: else nobody would capture the source
                log.exception("failed of a bug", source=task.source.name)
                # its words may hold values, which the policy does not let leave
                task.reported.now(FAILED, f"{type(error).__name__}, a bug: look into the agent's log")
            task.stopped.wait(AGAIN)

    def _channels(self, epoch: int) -> LeasedChannels:
        assert self._streams is not None, "sessions begin behind the first stream"
        return LeasedChannels(self._streams.stream(), epoch)

    def _stop(self, source_task: _SourceTask) -> None:
        source_task.stopped.set()
        if source_task.thread is not None:
            self._ended = [*(one for one in self._ended if one.is_alive()), source_task.thread]

    def _end_all(self) -> None:
        with self._lock:
            for source_task in self._source_tasks.values():
                self._stop(source_task)
            ended = list(self._ended)
        for thread in ended:
            thread.join(30.0)

    def _report(self, report: Report) -> None:
        self._send_report(StreamRequest(type=Control_Report, report=report))

    def _send_report(self, request: StreamRequest) -> None:
        if self._stream is not None:
            with suppress(Retriable):  # the next stream is told what holds then
                self._stream.report(request)

    def _map(self, stream: GrpcStream) -> None:
        if time.monotonic() < self._map_due:
            return
        now = time.monotonic()
        self._map_due = now + _MAP_EVERY
        if now - self._map_whole > _MAP_WHOLE:  # Kafka may have been away when it was told
            self._map_whole = now
            self._mapped.clear()
        for local in self._policy.connections.values():
            try:
                for seen in self._catalog_seen(local, self._name):
                    self._report_map(stream, local.alias, seen)
            except TailorbirdError as error:
                log.warning("not mapped", connection=local.alias, why=str(error))
            except Exception:  # told; the sources go on, and the next turn tries it again
                log.exception("not mapped", connection=local.alias)

    def _report_map(self, stream: GrpcStream, alias: str, seen: DatabaseSeen) -> None:
        """A database's map, where it is not what was told last."""
        content, place = packed(seen), (alias, seen.database)
        if self._mapped.get(place) == content:
            return
        for at in range(0, len(content), _PIECE):
            part = MapPart(connection=alias, database=seen.database, content=content[at : at + _PIECE])
            part.last = at + _PIECE >= len(content)
            stream.report(StreamRequest(type=Control_Map, map_part=part))
        self._mapped[place] = content
