"""The front door: agents' streams come in here, each over mTLS, and its lanes go to desks of their own.

One event loop has all streams and never waits for Kafka: desks do, in a thread for each lane that is in use.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping
from importlib.metadata import version
from typing import Any, Protocol

import grpc
import structlog

from cdc.words.errors import Retriable, UsageError
from ingest.fleet.fleet_pb2 import LogReply, StreamRequest, Unsupported
from ingest.fleet.identity import FleetIdentity, identity_of
from ingest.fleet.wire import GATEWAY_OPTIONS, PROTOCOL, RPC, SERVICE, hello
from ingest.gateway.grpc_desk import Desk, Opened

_VERSION = version("tailorbird")
_FIRST = 10.0  # seconds for the first message
_WAITING = 64  # messages to an agent that it has not taken yet
_LANES = 64  # of one stream

log = structlog.get_logger()


class Fleet(Protocol):
    """Whom the gateway serves."""

    def source(self, agent: FleetIdentity, name: str) -> Opened | None:
        """A source that an agent may capture; None for any other."""


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
        lanes = _Lanes(self._fleet, agent, context)
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
        log.warning("turned away", peer=context.peer(), agent=agent.uri if agent else None, why=why, code=code.name)
        await context.abort(code, why)


def _identity(told: Mapping[str, Any]) -> FleetIdentity | None:
    names = [name.decode(errors="replace") for name in told.get("x509_subject_alternative_name", ())]
    return identity_of(names)


class _Lanes:
    """The lanes of one stream."""

    def __init__(self, fleet: Fleet, agent: FleetIdentity, context: Any) -> None:
        self._fleet, self._agent, self._context = fleet, agent, context
        self._desks: dict[int, Desk] = {}
        self._outgoing: asyncio.Queue[StreamRequest] = asyncio.Queue(_WAITING)
        self._loop = asyncio.get_running_loop()
        self._gone = threading.Event()

    async def run(self, requests: Any) -> None:
        """Read until the stream ends, write beside it."""
        writing = asyncio.create_task(self._write())
        try:
            async for request in requests:
                await self._one(request)
        finally:
            writing.cancel()

    def close(self) -> None:
        """Every desk gives up what is uncommitted, and ends."""
        self._gone.set()
        for desk in self._desks.values():
            desk.put(None)

    async def _write(self) -> None:
        while True:
            await self._context.write(await self._outgoing.get())

    async def _one(self, request: StreamRequest) -> None:
        if request.WhichOneof("payload") != "log_call":
            told = Unsupported(type=request.type, what=f"a message of type {request.type}")
            await self._outgoing.put(StreamRequest(type=request.type, unsupported=told))
            return
        call = request.log_call
        desk = self._desks.get(call.lane)
        if desk is None:
            desk = await self._opened(call.lane, request.header.source)
        if not desk.put(call):
            log.warning("turned away", peer=self._context.peer(), agent=self._agent.uri, why="records without credit")
            await self._context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "records without credit")
        if call.WhichOneof("what") == "close":
            del self._desks[call.lane]

    async def _opened(self, lane: int, name: str) -> Desk:
        source = self._fleet.source(self._agent, name)
        if source is None or len(self._desks) >= _LANES:
            why = f"source {name[:80]!r} is none of this agent's" if source is None else f"more than {_LANES} lanes"
            log.warning("turned away", peer=self._context.peer(), agent=self._agent.uri, why=why)
            await self._context.abort(grpc.StatusCode.PERMISSION_DENIED, why)
        assert source is not None, "what is not known was turned away"
        desk = self._desks[lane] = Desk(source, lane, self._reply, self._refused(source.name))
        threading.Thread(target=desk.run, name=f"desk {source.name}", daemon=True).start()
        return desk

    def _refused(self, source: str) -> Callable[[str], None]:
        return lambda what: log.warning("refused", agent=self._agent.uri, source=source, what=what)

    def _reply(self, reply: LogReply) -> None:
        """Called by desks, in their threads: waits while the agent takes nothing."""
        if self._gone.is_set():
            raise Retriable("the agent is gone")
        put = asyncio.run_coroutine_threadsafe(self._outgoing.put(StreamRequest(log_reply=reply)), self._loop)
        while not self._gone.is_set():
            try:
                put.result(1.0)
                return
            except TimeoutError:
                continue
        put.cancel()
        raise Retriable("the agent is gone")
