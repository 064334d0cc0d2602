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
from ingest.gateway_client.grpc_channel import Lane
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
class Told:
    """What is told of a source: how far its session is; or why a version is refused, while what ran before goes on."""

    report: Report
    say: Callable[[Report], None]
    session: tuple[Progress, str] = (APPLYING, "")
    refused: str = ""
    said: float = 0.0  # when, by the monotonic clock

    def now(self, progress: Progress, reason: str = "") -> None:
        """How far the session is; said where it is news."""
        self.session = progress, reason
        self._tell()

    def refuse(self, version: int, why: str) -> None:
        """A further version may not run."""
        self.report.version, self.refused = version, why
        self._tell()

    def accept(self, version: int) -> None:
        """A further version is what runs already."""
        self.report.version, self.refused = version, ""
        self._tell(anew=True)

    def at(self, position: Mapping[str, Any], *, every: float) -> None:
        """Where it is; said where nothing was said for so many seconds."""
        self.report.position = orjson.dumps(position)
        if time.monotonic() - self.said >= every:
            self._tell(anew=True)

    def _tell(self, *, anew: bool = False) -> None:
        progress, reason = (FAILED, self.refused) if self.refused else self.session
        if anew or (progress, reason[:_REASON]) != (self.report.progress, self.report.reason):
            self.report.progress, self.report.reason = progress, reason[:_REASON]
            self.said = time.monotonic()
            self.say(self.report)


@dataclass(frozen=True, slots=True)
class Task:
    """One source to capture until `stopped`; `lanes` carry it under its lease, `taken` is what the policy took away."""

    topology: str
    policy: Policy
    local: LocalConnection
    source: Source
    taken: str
    lanes: Callable[[], LeasedLanes]
    stopped: threading.Event
    told: Told


Capture = Callable[[Task], None]  # returns when it was stopped; raises what ends a session for good


@dataclass(frozen=True, slots=True)
class LeasedLanes:
    """A stream whose lanes name the epoch of a lease; implements `gateway_log.Lanes`."""

    stream: GrpcStream
    epoch: int

    def lane(self, source: str, unasked: Callable[[LogReply], None]) -> Lane:
        """See `gateway_log.Lanes`."""
        return self.stream.lane(source, unasked, self.epoch)

    def leave(self, lane: Lane) -> None:
        """See `gateway_log.Lanes`."""
        self.stream.leave(lane)


@dataclass(slots=True)
class _Tenure:
    """A source that the agent has, and the thread that captures it."""

    epoch: int
    version: int
    told: Told
    runs: Narrowed | None = None
    stopped: threading.Event = field(default_factory=threading.Event)
    thread: threading.Thread | None = None


class FleetAgent:
    """Of one process. `atlas` reads what a connection shows; `capture` runs one session after another."""

    def __init__(
        self,
        name: str,
        policy: Policy,
        capture: Capture,
        atlas: Callable[[LocalConnection, str], Iterator[DatabaseSeen]],
    ) -> None:
        self._name, self._policy, self._capture, self._atlas = name, policy, capture, atlas
        self._streams: Streams | None = None
        self._stream: GrpcStream | None = None
        self._tenures: dict[str, _Tenure] = {}
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
                        for tenure in list(self._tenures.values()):
                            self._report(tenure.told.report)
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
        stream.tell(StreamRequest(ready=Ready(labels=dict(self._policy.labels), places=places)))
        for tenure in list(self._tenures.values()):
            stream.tell(StreamRequest(type=Control_Report, report=tenure.told.report))
        self._mapped.clear()
        self._map_due = 0.0

    def commanded(self, request: StreamRequest) -> None:
        """What the gateway says, in order; called by the stream's reader, so that nothing here waits."""
        with self._lock:
            if request.HasField("assign"):
                told = request.assign
                try:
                    self._assigned(told)
                except Exception as error:  # told; else the stream would end, and the next one too, of all sources
                    log.exception("not understood", source=told.source, version=told.version)
                    reason = f"{type(error).__name__}, a bug: look into the agent's log"
                    self._report(
                        Report(
                            source=told.source, epoch=told.epoch, version=told.version, progress=FAILED, reason=reason
                        )
                    )  # fmt: skip
            elif request.HasField("withdraw"):
                tenure = self._tenures.get(request.withdraw.source)
                if tenure is not None and tenure.epoch <= request.withdraw.epoch:
                    log.info("withdrawn", source=request.withdraw.source, why=request.withdraw.why)
                    self._stop(self._tenures.pop(request.withdraw.source))

    @property
    def reports(self) -> dict[str, Report]:
        """What was last told of each source."""
        return {source: tenure.told.report for source, tenure in list(self._tenures.items())}

    def _assigned(self, told: Assign) -> None:
        before = self._tenures.get(told.source)
        if before is not None and (before.epoch, before.version) == (told.epoch, told.version):
            return
        report = Report(source=told.source, epoch=told.epoch, version=told.version, progress=APPLYING)
        tenure = _Tenure(told.epoch, told.version, Told(report, self._report))
        log.info("assigned", source=told.source, epoch=told.epoch, version=told.version)
        try:
            spec = spec_of(orjson.loads(told.spec), told.topology, told.source)
            tenure.runs = self.narrowed(spec, told.topology, told.source)
        except (TailorbirdError, ValueError) as error:
            log.warning("refused", source=told.source, version=told.version, why=str(error))
            if before is not None and before.runs is not None and before.epoch == told.epoch:
                before.version = told.version
                before.told.refuse(told.version, f"{error}; what ran before goes on")
                return
            self._tenures[told.source] = tenure
            if before is not None:
                self._stop(before)
            tenure.told.now(FAILED, str(error))
            return
        if (
            before is not None
            and before.runs == tenure.runs
            and before.epoch == told.epoch
            and before.thread is not None
        ):
            before.version = told.version  # the same in other words
            before.told.accept(told.version)
            return
        report.hash, report.narrowed = effective_hash(tenure.runs.source), bool(tenure.runs.taken)
        self._tenures[told.source] = tenure
        if before is not None:
            self._stop(before)
        self._report(report)
        self._start(told, spec, tenure, before)

    def narrowed(self, spec: SourceSpec, topology: str, name: str) -> Narrowed:
        """What the policy leaves of a configuration; UsageError where it names what may not leave."""
        return narrowed(self._policy, spec, source_of(spec, topology, name), condition)

    def _start(self, told: Assign, spec: SourceSpec, tenure: _Tenure, before: _Tenure | None) -> None:
        assert tenure.runs is not None, "what is refused is not started"
        runs = tenure.runs
        if not spec.captures:
            tenure.told.now(APPLIED, "no table is captured yet")
            return
        local = self._policy.connections[spec.connection]
        task = Task(
            told.topology, self._policy, local, runs.source, "; ".join(runs.taken), lambda: self._lanes(tenure.epoch),
            tenure.stopped, tenure.told,
        )  # fmt: skip
        arguments = (task, before.thread if before is not None else None)
        name = f"capture {told.source}"
        tenure.thread = threading.Thread(target=self._run, args=arguments, name=name, daemon=True)
        tenure.thread.start()

    def _run(self, task: Task, before: threading.Thread | None) -> None:
        if before is not None:
            before.join()  # one session of a source at a time
        while not task.stopped.is_set():
            try:
                self._capture(task)
            except TailorbirdError as error:
                log.error("failed", source=task.source.name, why=str(error))
                task.told.now(FAILED, str(error))
            except Exception as error:  # told, and begun anew: else nobody would capture the source
                log.exception("failed of a bug", source=task.source.name)
                # its words may hold values, which the policy does not let leave
                task.told.now(FAILED, f"{type(error).__name__}, a bug: look into the agent's log")
            task.stopped.wait(AGAIN)

    def _lanes(self, epoch: int) -> LeasedLanes:
        assert self._streams is not None, "sessions begin behind the first stream"
        return LeasedLanes(self._streams.stream(), epoch)

    def _stop(self, tenure: _Tenure) -> None:
        tenure.stopped.set()
        if tenure.thread is not None:
            self._ended = [*(one for one in self._ended if one.is_alive()), tenure.thread]

    def _end_all(self) -> None:
        with self._lock:
            for tenure in self._tenures.values():
                self._stop(tenure)
            ended = list(self._ended)
        for thread in ended:
            thread.join(30.0)

    def _report(self, report: Report) -> None:
        self._tell(StreamRequest(type=Control_Report, report=report))

    def _tell(self, request: StreamRequest) -> None:
        if self._stream is not None:
            with suppress(Retriable):  # the next stream is told what holds then
                self._stream.tell(request)

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
                for seen in self._atlas(local, self._name):
                    self._tell_map(stream, local.alias, seen)
            except TailorbirdError as error:
                log.warning("not mapped", connection=local.alias, why=str(error))
            except Exception:  # told; the sources go on, and the next turn tries it again
                log.exception("not mapped", connection=local.alias)

    def _tell_map(self, stream: GrpcStream, alias: str, seen: DatabaseSeen) -> None:
        """A database's map, where it is not what was told last."""
        content, place = packed(seen), (alias, seen.database)
        if self._mapped.get(place) == content:
            return
        for at in range(0, len(content), _PIECE):
            part = MapPart(connection=alias, database=seen.database, content=content[at : at + _PIECE])
            part.last = at + _PIECE >= len(content)
            stream.tell(StreamRequest(type=Control_Map, map_part=part))
        self._mapped[place] = content
