"""Gateway's side of one agent's stream: its session channels, and the commands of the coordinator.

One event loop serves all streams and never waits for Kafka. Each session handler has a thread that may wait; so has the
coordinator. Commands overtake answers of session handlers.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, NoReturn, Protocol

import grpc
import structlog

from cdc.model.errors import Retriable
from ingest.fleet.answers import failure_of
from ingest.fleet.fleet_pb2 import (
    Control_Config,
    Control_Heartbeat,
    Control_Report,
    Data_Log,
    Failure,
    Hello,
    LogReply,
    RequestType,
    StreamRequest,
    Unsupported,
)
from ingest.fleet.identity import FleetIdentity
from ingest.fleet.message_checks import invalid_reason
from ingest.fleet.request_types import CATALOGS, TYPED, plugin_key, type_name, typed
from ingest.fleet.wire import MESSAGE
from ingest.gateway.agent_use import SESSIONS, AgentUse
from ingest.gateway.gateway_interfaces import AgentConnection
from ingest.gateway.grpc_session import ServedSource, SessionHandler
from ingest.gateway.proc_credit import CreditBudget

_WAITING = 1024 * 1024  # bytes of answers that an agent has not read yet; above that, session handlers wait
_CHANNELS = 64  # of one stream
# Commands that an agent has not read: the bytes above which it is `full`, and the bytes and number that end its stream.
_FULL, _UNSENT, _UNSENT_COMMANDS = 4 * 1024 * 1024, 32 * 1024 * 1024, 1000
# messages to the coordinator that an agent may send on one stream: in a burst, and per second
_SAYS, _SAYS_PER_SECOND = 500.0, 50.0
_COMMAND, _ANSWER = 0, 1  # priorities: commands are sent first
_SILENT = 10  # number of checks (one per second) without a message; agents send a heartbeat every 3 s
_UNKNOWN = 16  # maximum number of unsupported messages that are audited per stream
_HEARD = frozenset({"report", "map_part"})  # messages of an agent that has announced itself
_SERVED = _HEARD | {"ready", "heartbeat", "log_call"}
_WHY = 300  # characters of an agent's reason in the audit
_BROKEN = 0.1  # seconds to wait until gRPC reports that a stream was broken rather than ended
_BROKE_OFF = f"the agent disconnected without closing, or sent more than {MESSAGE} bytes at once"

log = structlog.get_logger()


class Fleet(Protocol):
    """Agents and sources that the gateway serves. Methods are called in the event loop, so none may block."""

    def serves(self, agent: FleetIdentity) -> bool:
        """Return whether the gateway serves the agent's tenant."""

    def source(self, agent: FleetIdentity, name: str, epoch: int) -> ServedSource | None:
        """Return the source that an agent asks for, with its lease's epoch (0: no lease); None if it is not one of the
        agent's."""

    def revoked(self, agent: FleetIdentity, serial: str) -> bool:
        """Return whether an agent's certificate was revoked."""

    def bearer(self, token: str) -> FleetIdentity | str:
        """Return the agent to which a token belongs, or why the token is refused."""

    def joined(self, agent_connection: AgentConnection, request: StreamRequest, version: str) -> None:
        """Register an agent that accepts assignments; `request` is its first message, with the field `ready`."""

    def heard(self, agent_connection: AgentConnection, request: StreamRequest) -> None:
        """Process a status report, or a part of the catalog, from a registered agent."""

    def left(self, agent_connection: AgentConnection) -> None:
        """Remove an agent whose stream has ended."""

    def refused(self, entry: Mapping[str, Any], agent: FleetIdentity | None) -> None:
        """Write a refusal to the audit log; `agent` is None if the peer is unknown."""


async def reject(fleet: Fleet, context: Any, code: grpc.StatusCode, why: str, agent: FleetIdentity | None) -> NoReturn:
    """End a stream with a reason, in the audit log and to the peer. Always raises."""
    who = agent.uri if agent else None
    log.warning("stream refused", peer=context.peer(), agent=who, why=why, code=code.name)
    fleet.refused({"what": "dial", "who": who, "from": context.peer(), "outcome": "turned away", "why": why}, agent)
    await context.abort(code, why)
    raise AssertionError("abort raises")


class AgentStream:
    """One agent's stream and its session channels. Implements `AgentConnection` if the agent accepts assignments.

    A message is served by the plugin of its type. `first` is the agent's first message, `use` what all of its streams
    use.
    """

    def __init__(
        self, fleet: Fleet, agent: FleetIdentity, context: Any, first: Hello, budget: CreditBudget, use: AgentUse
    ) -> None:
        self._fleet, self.agent, self._context, self._version = fleet, agent, context, first.version
        self._budget, self._use, self._former = budget, use, TYPED not in first.features
        self._plugins: Mapping[RequestType, Callable[[StreamRequest], Awaitable[None]]] = {
            Control_Config: self._joined, Control_Heartbeat: self._beat, Control_Report: self._heard,
            Data_Log: self._called, **dict.fromkeys(CATALOGS, self._heard),
        }  # fmt: skip
        self._handlers: dict[int, SessionHandler] = {}
        self._outgoing: asyncio.PriorityQueue[tuple[int, int, StreamRequest]] = asyncio.PriorityQueue()
        self._numbers = itertools.count()
        self._room, self._answers = asyncio.Event(), 0  # queued bytes
        self._commands = 0
        self._queued, self._sent = 0, 0  # bytes of commands: added by one thread, removed by another
        self._loop = asyncio.get_running_loop()
        self._gone, self._ending = threading.Event(), self._loop.create_future()
        self._peer: str = context.peer()  # stored here, because gRPC forgets it when the stream ends
        self._ready = False
        self._checks = 0  # checks since the last message of the agent
        self._places: set[tuple[str, str]] = set()
        self._unknown: set[tuple[int, str]] = set()  # unsupported messages that were audited
        self._over: dict[int, str] = {}  # session channels that were refused, and why
        self._threads: list[threading.Thread] = []
        self._allowance, self._counted_at = _SAYS, time.monotonic()

    async def run(self, requests: AsyncIterator[StreamRequest]) -> None:
        """Read messages until the stream ends, and write queued ones at the same time."""
        writing, reading = asyncio.create_task(self._write()), asyncio.create_task(self._read(requests))
        try:
            await asyncio.wait({reading, self._ending}, return_when=asyncio.FIRST_COMPLETED)
            if reading.done():
                reading.result()  # raises the error that ended the reading
                await asyncio.sleep(_BROKEN)
            else:
                code, why = self._ending.result()
                if code is not grpc.StatusCode.UNAVAILABLE:
                    await self._reject(code, why)
                await self._context.abort(code, why)
        except asyncio.CancelledError:
            # gRPC reports an oversized message and a killed agent in the same way
            self._audit("stream", "broke off", _BROKE_OFF)
            raise
        finally:
            writing.cancel()
            reading.cancel()

    def close(self) -> None:
        """Make every session handler abort uncommitted records, and end."""
        self._gone.set()
        if self._ready:
            self._fleet.left(self)
        for session_handler in self._handlers.values():
            session_handler.put(None)

    def send(self, request: StreamRequest) -> None:
        """Implements `AgentConnection.send`. The coordinator's thread calls it."""
        self._queued += typed(request).ByteSize()
        self._soon(self._command, request)

    @property
    def full(self) -> bool:
        """Return whether so much is queued for the agent that further commands should wait."""
        return self._queued - self._sent > _FULL

    def end(self, why: str) -> None:
        """Implements `AgentConnection.end`. Any thread may call it."""
        self._soon(self._end, why)

    def end_unauthenticated(self, why: str) -> None:
        """End the stream because its credentials are no longer valid. Called in the event loop."""
        self._end(why, grpc.StatusCode.UNAUTHENTICATED)

    def _soon(self, do: Callable[..., None], what: Any) -> None:
        if not self._gone.is_set():
            self._loop.call_soon_threadsafe(do, what)

    def _end(self, why: str, code: grpc.StatusCode = grpc.StatusCode.UNAVAILABLE) -> None:
        if not self._ending.done():
            self._ending.set_result((code, why))

    def _command(self, request: StreamRequest) -> None:
        self._commands += 1
        if self._commands > _UNSENT_COMMANDS or self._queued - self._sent > _UNSENT:
            self._end("the agent reads nothing")
            return
        if request.WhichOneof("payload") == "withdraw":
            source = request.withdraw.source
            for channel in [
                channel for channel, session_handler in self._handlers.items() if session_handler.source == source
            ]:
                # end the session handler even if the agent ignores the command
                self._shut(channel, f"source {source} was withdrawn")
        self._outgoing.put_nowait((_COMMAND, next(self._numbers), request))

    def check_silence(self) -> None:
        """End session channels with uncommitted records if the agent sends nothing for `_SILENT` checks; called every
        second.

        Otherwise consumers would wait for the open transaction of a suspended agent. It counts checks and not seconds,
        because a busy event loop reads messages late.
        """
        self._checks += 1
        if self._checks > _SILENT:
            for channel in [channel for channel, handler in self._handlers.items() if handler.uncommitted]:
                self._shut(channel, f"the agent was silent for {_SILENT} s")

    def _shut(self, channel: int, why: str) -> None:
        """End a session handler and inform its session at once, which may be waiting for credit."""
        self._handlers.pop(channel).put(None)
        self._over[channel] = why
        self._answer_now(StreamRequest(log_reply=LogReply(channel=channel, failure=_failure(why))))

    async def _read(self, requests: AsyncIterator[StreamRequest]) -> None:
        async for request in requests:
            await self._one(request)

    async def _write(self) -> None:
        while True:
            kind, _, request = await self._outgoing.get()
            await self._context.write(request)
            if kind == _ANSWER:
                self._answers -= request.ByteSize()
                self._room.set()
            else:
                self._commands -= 1
                self._sent += request.ByteSize()

    async def _answer(self, request: StreamRequest) -> None:
        while self._answers > _WAITING:
            self._room.clear()
            await self._room.wait()
        self._answers += typed(request).ByteSize()
        self._outgoing.put_nowait((_ANSWER, next(self._numbers), request))

    def _answer_now(self, request: StreamRequest) -> None:
        """Queue an answer without waiting for space, because waiting would stop the reading of this stream."""
        if self._answers > _WAITING:
            self._end("the agent reads nothing")
            return
        self._answers += typed(request).ByteSize()
        self._outgoing.put_nowait((_ANSWER, next(self._numbers), request))

    async def _one(self, request: StreamRequest) -> None:
        what, self._checks = request.WhichOneof("payload"), 0
        if why := invalid_reason(request):
            await self._reject(grpc.StatusCode.INVALID_ARGUMENT, why)
        try:
            plugin = self._plugins.get(plugin_key(request, former=self._former))
        except ValueError as error:
            await self._reject(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        if what == "unsupported":  # not answered: two sides that answer unknown messages would do so forever
            await self._count()
            self._audit_unsupported(request.unsupported.type, f"the agent refused {request.unsupported.what[:_WHY]!r}")
        elif what in _SERVED and plugin is not None and (self._ready or what not in _HEARD):
            await plugin(request)
        else:
            self._not_supported(request)

    def _not_supported(self, request: StreamRequest) -> None:
        """Answer and audit a message that has no plugin, so that a newer agent continues without it."""
        why = f"a message of type {type_name(request.type)}"
        self._audit_unsupported(request.type, why)
        self._answer_now(StreamRequest(type=request.type, unsupported=Unsupported(type=request.type, what=why)))

    def _audit_unsupported(self, key: int, why: str) -> None:
        if (key, why) not in self._unknown and len(self._unknown) < _UNKNOWN:
            self._unknown.add((key, why))
            self._audit("message", "not supported", why)

    async def _joined(self, request: StreamRequest) -> None:
        if self._ready:
            self._not_supported(request)
            return
        self._ready = True
        self._places = {(place.connection, place.database) for place in request.ready.places}
        self._fleet.joined(self, request, self._version)

    async def _beat(self, request: StreamRequest) -> None:
        await self._count()

    async def _count(self) -> None:
        now = time.monotonic()
        self._allowance = min(_SAYS, self._allowance + (now - self._counted_at) * _SAYS_PER_SECOND) - 1
        self._counted_at = now
        if not self._use.may_send(now) or self._allowance < 0:
            await self._reject(grpc.StatusCode.RESOURCE_EXHAUSTED, "it sends too many messages")

    async def _heard(self, request: StreamRequest) -> None:
        await self._count()
        part = request.map_part
        if request.HasField("map_part") and (part.connection, part.database) not in self._places:
            await self._reject(
                grpc.StatusCode.INVALID_ARGUMENT, f"catalog of {part.database[:64]!r}, which it did not announce"
            )
        self._fleet.heard(self, request)

    async def _called(self, request: StreamRequest) -> None:
        call = request.log_call
        session_handler = self._handlers.get(call.channel)
        if session_handler is None and call.channel not in self._over and (why := self._crowded()):
            if len(self._over) >= _UNSENT_COMMANDS:
                await self._reject(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many refused sessions")
            self._over[call.channel] = why
            self._audit("session", "refused", self._over[call.channel], request.header.source)
        if call.channel in self._over:  # the agent may not know yet that the channel has ended
            if call.call:
                failed = LogReply(channel=call.channel, call=call.call, failure=_failure(self._over[call.channel]))
                self._answer_now(StreamRequest(log_reply=failed))
            if call.WhichOneof("what") == "close":
                del self._over[call.channel]
            return
        named = request.header.source
        if session_handler is not None and named not in ("", session_handler.source):
            why = f"channel {call.channel} belongs to source {session_handler.source!r}, but a message names {named!r}"
            await self._reject(grpc.StatusCode.PERMISSION_DENIED, why)
        if session_handler is None:
            session_handler = await self._opened(call.channel, named, request.header.epoch)
        if why := session_handler.put(call):
            await self._reject(grpc.StatusCode.RESOURCE_EXHAUSTED, why)
        if call.WhichOneof("what") == "close":
            del self._handlers[call.channel]

    async def _opened(self, channel: int, name: str, epoch: int) -> SessionHandler:
        source = self._fleet.source(self.agent, name, epoch)
        if source is None:
            await self._reject(grpc.StatusCode.PERMISSION_DENIED, f"this agent may not capture source {name[:80]!r}")
        session_handler = self._handlers[channel] = SessionHandler(
            source, channel, self._reply, self._refused(source.name), self._budget
        )
        self._threads.append(threading.Thread(target=session_handler.run, name=f"session {source.name}", daemon=True))
        self._threads[-1].start()
        self._use.begun(self._threads[-1].is_alive)
        return session_handler

    def _crowded(self) -> str:
        """Return why no further session channel may be opened: too many of them, or of their threads, exist.

        The thread of a closed channel may still be running. Empty if one may be opened.
        """
        self._threads = [one for one in self._threads if one.is_alive()]
        if len(self._handlers) >= _CHANNELS or len(self._threads) >= 2 * _CHANNELS:
            return f"an agent may run {_CHANNELS} sessions on one stream"
        return "" if self._use.may_begin() else f"an agent may run {SESSIONS} sessions on all of its streams"

    async def _reject(self, code: grpc.StatusCode, why: str) -> NoReturn:
        await reject(self._fleet, self._context, code, why, self.agent)

    def _refused(self, source: str) -> Callable[[str], None]:
        def audit(what: str) -> None:
            self._audit("write", "refused", what, source)

        return audit

    def _audit(self, what: str, outcome: str, why: str, source: str = "") -> None:
        who, peer = self.agent.uri, self._peer
        log.warning(outcome, agent=who, source=source, what=what, why=why)
        line = {"what": what, "who": who, "from": peer, "outcome": outcome, "why": why}
        self._fleet.refused({**line, "on": source} if source else line, self.agent)

    def _reply(self, reply: LogReply) -> None:
        """Send a session handler's reply, from its thread. Blocks while the agent does not read."""
        if self._gone.is_set():
            raise Retriable("the agent has disconnected")
        put = asyncio.run_coroutine_threadsafe(self._answer(StreamRequest(log_reply=reply)), self._loop)
        while not self._gone.is_set():
            try:
                put.result(1.0)
                return
            except TimeoutError:
                continue
        put.cancel()
        raise Retriable("the agent has disconnected")


def _failure(why: str) -> Failure:
    return failure_of(Retriable(why, retry_after=5.0))
