"""The front door: agents' streams come in here, each over mTLS, and its lanes go to desks of their own.

One event loop has all streams and never waits for Kafka: desks do, in a thread for each lane that is in use, and the
steward, which commands the agents that want to be commanded. What it says goes before the desks' answers.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections.abc import Callable, Mapping
from importlib.metadata import version
from typing import Any, NoReturn, Protocol

import grpc
import structlog

from cdc.words.errors import Retriable, UsageError
from ingest.fleet.fleet_pb2 import LogReply, StreamRequest, Unsupported
from ingest.fleet.identity import FleetIdentity, identity_of
from ingest.fleet.wire import GATEWAY_OPTIONS, PROTOCOL, RPC, SERVICE, hello
from ingest.gateway.grpc_desk import Desk, Opened
from ingest.gateway.seams import AgentSeat

_VERSION = version("tailorbird")
_FIRST = 10.0  # seconds for the first message
_WAITING = 64  # messages to an agent that it has not taken yet
_LANES = 64  # of one stream
_UNSENT = 1000  # words of the steward's that an agent has not taken
# of an agent's words to the steward: what it may say at once, and a second
_SAYS, _SAYS_PER_SECOND = 500.0, 50.0
_COMMAND, _ANSWER = 0, 1  # what is sent first
_HEARD = frozenset({"report", "map_part"})

log = structlog.get_logger()


class Fleet(Protocol):
    """Whom the gateway serves. Called in the event loop: nothing here waits."""

    def source(self, agent: FleetIdentity, name: str, epoch: int) -> Opened | None:
        """A source that an agent may capture, under a lease (0: under none); None for any other."""

    def joined(self, seat: AgentSeat, request: StreamRequest, version: str) -> None:
        """An agent wants to be commanded; `request` holds its `ready`."""

    def heard(self, seat: AgentSeat, request: StreamRequest) -> None:
        """What such an agent tells."""

    def left(self, seat: AgentSeat) -> None:
        """Its stream has ended."""

    def refused(self, said: Mapping[str, Any]) -> None:
        """What was not done, for the audit."""


class Door:
    """Serves `Fleet.Connect` of fleet.proto."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet

    async def serve(
        self, address: str, pem: Mapping[str, bytes], stopped: asyncio.Event, serves: Callable[[], None]
    ) -> None:
        """Until `stopped`; `serves` is called once agents may dial. `pem`: of the fleet's authority (`ca`), and of the
        gateway's `cert` and `key`. UsageError where the address can not be had.
        """
        credentials = grpc.ssl_server_credentials(
            [(pem["key"], pem["cert"])], root_certificates=pem["ca"], require_client_auth=True
        )
        server = grpc.aio.server(options=GATEWAY_OPTIONS)
        handler = grpc.stream_stream_rpc_method_handler(
            self.connect,
            request_deserializer=StreamRequest.FromString,
            response_serializer=StreamRequest.SerializeToString,
        )
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, {RPC: handler}),))
        try:
            server.add_secure_port(address, credentials)
        except RuntimeError as error:
            raise UsageError(f"{address} can not be listened at", "is another gateway running?") from error
        await server.start()
        serves()
        await stopped.wait()
        await server.stop(1.0)

    async def connect(self, requests: Any, context: grpc.aio.ServicerContext[StreamRequest, StreamRequest]) -> None:
        """One stream of one agent."""
        agent = _identity(context.auth_context())
        if agent is None or agent.role != "agents":
            await self._turned_away(context, grpc.StatusCode.UNAUTHENTICATED, "no certificate of an agent", agent)
        assert agent is not None, "who is not known was turned away"
        first = await self._first(requests, context, agent)
        said = first.header
        if (said.tenant or agent.tenant, said.agent or agent.name) != (agent.tenant, agent.name):
            what = f"it says that it is {said.tenant}/{said.agent}"
            await self._turned_away(context, grpc.StatusCode.PERMISSION_DENIED, what, agent)
        if first.hello.protocol != PROTOCOL:
            what = f"protocol {first.hello.protocol}; this gateway speaks {PROTOCOL}"
            await self._turned_away(context, grpc.StatusCode.FAILED_PRECONDITION, what, agent)
        log.info("agent connected", agent=agent.uri, peer=context.peer(), version=first.hello.version)
        await context.write(hello(_VERSION))
        lanes = _Lanes(self._fleet, agent, context, first.hello.version)
        try:
            await lanes.run(requests)
        finally:
            lanes.close()
            log.info("agent gone", agent=agent.uri, peer=context.peer())

    async def _first(self, requests: Any, context: Any, agent: FleetIdentity) -> StreamRequest:
        try:
            first: StreamRequest = await asyncio.wait_for(anext(requests), _FIRST)
        except (TimeoutError, StopAsyncIteration):
            await self._turned_away(context, grpc.StatusCode.DEADLINE_EXCEEDED, "it said nothing", agent)
            raise
        if first.WhichOneof("payload") != "hello":
            await self._turned_away(context, grpc.StatusCode.FAILED_PRECONDITION, "it did not say hello", agent)
        return first

    async def _turned_away(self, context: Any, code: grpc.StatusCode, why: str, agent: FleetIdentity | None) -> None:
        """Tell why, once in the audit and once to the peer; raises."""
        await _turned_away(self._fleet, context, code, why, agent)


async def _turned_away(
    fleet: Fleet, context: Any, code: grpc.StatusCode, why: str, agent: FleetIdentity | None
) -> NoReturn:
    who = agent.uri if agent else None
    log.warning("turned away", peer=context.peer(), agent=who, why=why, code=code.name)
    fleet.refused({"what": "dial", "who": who, "from": context.peer(), "outcome": "turned away", "why": why})
    await context.abort(code, why)
    raise AssertionError("abort raises")


def _identity(told: Mapping[str, Any]) -> FleetIdentity | None:
    names = [name.decode(errors="replace") for name in told.get("x509_subject_alternative_name", ())]
    return identity_of(names)


class _Lanes:
    """The lanes of one stream; and the agent's seat (`seams.AgentSeat`), where it wants to be commanded."""

    def __init__(self, fleet: Fleet, agent: FleetIdentity, context: Any, version: str) -> None:
        self._fleet, self.agent, self._context, self._version = fleet, agent, context, version
        self._desks: dict[int, Desk] = {}
        self._outgoing: asyncio.PriorityQueue[tuple[int, int, StreamRequest]] = asyncio.PriorityQueue()
        self._numbers = itertools.count()
        self._room, self._commands = asyncio.Semaphore(_WAITING), 0
        self._loop = asyncio.get_running_loop()
        self._gone, self._ending = threading.Event(), self._loop.create_future()
        self._seated = False
        self._says, self._said_at = _SAYS, time.monotonic()

    async def run(self, requests: Any) -> None:
        """Read until the stream ends, write beside it."""
        writing, reading = asyncio.create_task(self._write()), asyncio.create_task(self._read(requests))
        try:
            await asyncio.wait({reading, self._ending}, return_when=asyncio.FIRST_COMPLETED)
            if reading.cancelled():
                return  # the agent, or this gateway, has given the stream up
            if reading.done():
                reading.result()  # raises what has ended it
            else:
                await self._context.abort(grpc.StatusCode.UNAVAILABLE, self._ending.result())
        finally:
            writing.cancel()
            reading.cancel()

    def close(self) -> None:
        """Every desk gives up what is uncommitted, and ends."""
        self._gone.set()
        if self._seated:
            self._fleet.left(self)
        for desk in self._desks.values():
            desk.put(None)

    def say(self, request: StreamRequest) -> None:
        """See `seams.AgentSeat`; any thread may call it."""
        self._soon(self._command, request)

    def end(self, why: str) -> None:
        """See `seams.AgentSeat`; any thread may call it."""
        self._soon(self._end, why)

    def _soon(self, do: Callable[..., None], what: Any) -> None:
        if not self._gone.is_set():
            self._loop.call_soon_threadsafe(do, what)

    def _end(self, why: str) -> None:
        if not self._ending.done():
            self._ending.set_result(why)

    def _command(self, request: StreamRequest) -> None:
        self._commands += 1
        if self._commands > _UNSENT:
            self._end("it takes nothing")
            return
        if request.WhichOneof("payload") == "withdraw":
            self._shut(request.withdraw.source)
        self._outgoing.put_nowait((_COMMAND, next(self._numbers), request))

    def _shut(self, source: str) -> None:
        """What has no lease any more ends, whether or not the agent does as it is told."""
        for lane, desk in list(self._desks.items()):
            if desk.source == source:
                desk.put(None)
                del self._desks[lane]

    async def _read(self, requests: Any) -> None:
        async for request in requests:
            await self._one(request)

    async def _write(self) -> None:
        while True:
            kind, _, request = await self._outgoing.get()
            await self._context.write(request)
            if kind == _ANSWER:
                self._room.release()
            else:
                self._commands -= 1

    async def _answer(self, request: StreamRequest) -> None:
        await self._room.acquire()
        self._outgoing.put_nowait((_ANSWER, next(self._numbers), request))

    async def _one(self, request: StreamRequest) -> None:
        what = request.WhichOneof("payload")
        if what == "ready" and not self._seated:
            self._seated = True
            self._fleet.joined(self, request, self._version)
        elif what in _HEARD and self._seated:
            await self._heard(request)
        elif what == "log_call":
            await self._called(request)
        else:
            told = Unsupported(type=request.type, what=f"a message of type {request.type}")
            await self._answer(StreamRequest(type=request.type, unsupported=told))

    async def _heard(self, request: StreamRequest) -> None:
        now = time.monotonic()
        self._says = min(_SAYS, self._says + (now - self._said_at) * _SAYS_PER_SECOND) - 1
        self._said_at = now
        if self._says < 0:
            await self._away(grpc.StatusCode.RESOURCE_EXHAUSTED, "it says more than a gateway hears")
        self._fleet.heard(self, request)

    async def _called(self, request: StreamRequest) -> None:
        call = request.log_call
        desk = self._desks.get(call.lane)
        if desk is None:
            desk = await self._opened(call.lane, request.header.source, request.header.epoch)
        if not desk.put(call):
            await self._away(grpc.StatusCode.RESOURCE_EXHAUSTED, "records without credit")
        if call.WhichOneof("what") == "close":
            del self._desks[call.lane]

    async def _opened(self, lane: int, name: str, epoch: int) -> Desk:
        source = self._fleet.source(self.agent, name, epoch)
        if source is None:
            await self._away(grpc.StatusCode.PERMISSION_DENIED, f"source {name[:80]!r} is none of this agent's")
        if len(self._desks) >= _LANES:
            await self._away(grpc.StatusCode.PERMISSION_DENIED, f"more than {_LANES} lanes")
        desk = self._desks[lane] = Desk(source, lane, self._reply, self._refused(source.name))
        threading.Thread(target=desk.run, name=f"desk {source.name}", daemon=True).start()
        return desk

    async def _away(self, code: grpc.StatusCode, why: str) -> NoReturn:
        await _turned_away(self._fleet, self._context, code, why, self.agent)

    def _refused(self, source: str) -> Callable[[str], None]:
        def told(what: str) -> None:
            log.warning("refused", agent=self.agent.uri, source=source, what=what)
            who, peer = self.agent.uri, self._context.peer()
            self._fleet.refused(
                {"what": "write", "on": source, "who": who, "from": peer, "outcome": "refused", "why": what}
            )

        return told

    def _reply(self, reply: LogReply) -> None:
        """Called by desks, in their threads: waits while the agent takes nothing."""
        if self._gone.is_set():
            raise Retriable("the agent is gone")
        put = asyncio.run_coroutine_threadsafe(self._answer(StreamRequest(log_reply=reply)), self._loop)
        while not self._gone.is_set():
            try:
                put.result(1.0)
                return
            except TimeoutError:
                continue
        put.cancel()
        raise Retriable("the agent is gone")
