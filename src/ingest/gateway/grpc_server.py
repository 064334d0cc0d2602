"""The front door: agents' streams come in here, each over mTLS, and its lanes go to desks of their own.

Who is not known, who says that he is somebody else, and whose certificate counts no more, is turned away; also while
his stream is open.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from importlib.metadata import version
from typing import Any, NoReturn

import grpc
import structlog
from google.protobuf.message import DecodeError

from cdc.model.errors import UsageError
from ingest.fleet.certificate import Certified, certified
from ingest.fleet.fleet_pb2 import StreamRequest
from ingest.fleet.identity import FleetIdentity
from ingest.fleet.improper import improper
from ingest.fleet.tokens import Guesses
from ingest.fleet.wire import GATEWAY_OPTIONS, PROTOCOL, RPC, SERVICE, hello
from ingest.gateway.grpc_streams import AgentStream, Fleet, turned_away
from ingest.gateway.proc_credit import CreditBudget

_VERSION = version("tailorbird")
_FIRST = 10.0  # seconds for the first message
_STREAMS = 64  # of one agent: a capture of its own topology has one for itself
_WATCH = 1.0  # seconds between looks at the certificates of open streams

_GUESSED = "too many wrong tokens from this address: not heard for a while"
Void = Callable[[], str]  # why an agent counts no more; empty while it does

log = structlog.get_logger()


class AgentServer:
    """Serves `Fleet.Connect` of fleet.proto."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._open: dict[AgentStream, Void] = {}
        self._budget = CreditBudget()
        self._guesses = Guesses()

    async def serve(
        self,
        address: str,
        pem: Mapping[str, bytes],
        stopped: asyncio.Event,
        serves: Callable[[], None],
        tokens: str | None = None,
    ) -> None:
        """Until `stopped`; `serves` is called once agents may dial. `pem`: of the fleet's authority (`ca`), and of the
        gateway's `cert` and `key`. At `tokens` come those without a certificate: gRPC's Python can not have both at one
        port. UsageError where an address can not be had.
        """
        pair = [(pem["key"], pem["cert"])]
        ports = {address: grpc.ssl_server_credentials(pair, root_certificates=pem["ca"], require_client_auth=True)}
        if tokens is not None:
            ports[tokens] = grpc.ssl_server_credentials(pair)
        server = grpc.aio.server(options=GATEWAY_OPTIONS)
        handler = grpc.stream_stream_rpc_method_handler(
            self.connect,
            request_deserializer=bytes,  # read in `_read`, which tells what is none
            response_serializer=StreamRequest.SerializeToString,
        )
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, {RPC: handler}),))
        for port, credentials in ports.items():
            try:
                server.add_secure_port(port, credentials)
            except RuntimeError as error:
                raise UsageError(f"{port} can not be listened at", "is another gateway running?") from error
        await server.start()
        serves()
        async with asyncio.TaskGroup() as tasks:  # which raises what ends the watch
            watching = tasks.create_task(self._watch())
            await stopped.wait()
            watching.cancel()
        for stream in self._open:
            stream.end("this gateway stops: dial another one")
        await server.stop(1.0)

    async def _watch(self) -> None:
        """Cut the streams of whoever counts no more since they were opened, and the lanes of those that are silent."""
        while True:
            await asyncio.sleep(_WATCH)
            for stream, void in list(self._open.items()):
                stream.silent()
                if why := void():
                    stream.void(why)

    async def connect(self, requests: Any, context: grpc.aio.ServicerContext[StreamRequest, StreamRequest]) -> None:
        """One stream of one agent."""
        agent, void = await self._who(context)
        if not self._fleet.serves(agent):
            why = f"tenant {agent.tenant} is none of this gateway's"
            await self._turned_away(context, grpc.StatusCode.PERMISSION_DENIED, why, agent)
        heard = self._read(requests, context, agent)
        first = await self._first(heard, context, agent)
        said = first.header
        if (said.tenant or agent.tenant, said.agent or agent.name) != (agent.tenant, agent.name):
            what = f"it says that it is {said.tenant}/{said.agent}"
            await self._turned_away(context, grpc.StatusCode.PERMISSION_DENIED, what, agent)
        if first.hello.protocol != PROTOCOL:
            what = f"protocol {first.hello.protocol}; this gateway speaks {PROTOCOL}"
            await self._turned_away(context, grpc.StatusCode.FAILED_PRECONDITION, what, agent)
        if sum(one.agent == agent for one in self._open) >= _STREAMS:
            what = f"more than {_STREAMS} streams of one agent"
            await self._turned_away(context, grpc.StatusCode.RESOURCE_EXHAUSTED, what, agent)
        stream = AgentStream(self._fleet, agent, context, first.hello.version, self._budget)
        self._open[stream] = void
        try:
            log.info("agent connected", agent=agent.uri, peer=context.peer(), version=first.hello.version)
            await context.write(hello(_VERSION))
            await stream.run(heard)
        finally:
            del self._open[stream]
            stream.close()
            log.info("agent gone", agent=agent.uri, peer=context.peer())

    async def _who(self, context: Any) -> tuple[FleetIdentity, Void]:
        """Whose stream it is, and how to ask later whether he still counts; raises where he does not now."""
        shown = _shown(context.auth_context())
        if shown is None:
            return await self._bearer(context)
        agent = shown.who
        if agent is None or agent.role != "agents":
            await self._turned_away(context, grpc.StatusCode.UNAUTHENTICATED, "no certificate of an agent", agent)

        def void() -> str:
            if self._fleet.revoked(agent, shown.serial):
                return f"certificate {shown.serial} was revoked"
            return f"certificate {shown.serial} has ended" if time.time() >= shown.ends else ""

        if why := void():
            await self._turned_away(context, grpc.StatusCode.UNAUTHENTICATED, why, agent)
        return agent, void

    async def _bearer(self, context: Any) -> tuple[FleetIdentity, Void]:
        """By the token in the call's metadata; while an address guesses, one line stands for all that is not heard."""
        address, now = context.peer().rpartition(":")[0], time.monotonic()
        if self._guesses.shut(address, now) > 0:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, _GUESSED)
        said = dict(context.invocation_metadata() or ()).get("authorization", "")
        token = str(said).removeprefix("Bearer ")
        agent = self._fleet.bearer(token)
        if isinstance(agent, str):
            self._guesses.failed(address, now)
            shut = f"; {_GUESSED}" if self._guesses.shut(address, now) > 0 else ""
            await self._turned_away(context, grpc.StatusCode.UNAUTHENTICATED, agent + shut, None)

        def void() -> str:
            found = self._fleet.bearer(token)
            return found if isinstance(found, str) else ""

        return agent, void

    async def _read(self, requests: Any, context: Any, agent: FleetIdentity) -> AsyncIterator[StreamRequest]:
        async for content in requests:
            try:
                request = StreamRequest.FromString(content)
            except DecodeError:
                why = f"{len(content)} bytes that are no message, or half of one"
                await self._turned_away(context, grpc.StatusCode.INVALID_ARGUMENT, why, agent)
            yield request

    async def _first(self, requests: Any, context: Any, agent: FleetIdentity) -> StreamRequest:
        try:
            first: StreamRequest = await asyncio.wait_for(anext(requests), _FIRST)
        except (TimeoutError, StopAsyncIteration):
            await self._turned_away(context, grpc.StatusCode.DEADLINE_EXCEEDED, "it said nothing", agent)
        if why := improper(first):
            await self._turned_away(context, grpc.StatusCode.INVALID_ARGUMENT, why, agent)
        if first.WhichOneof("payload") != "hello":
            await self._turned_away(context, grpc.StatusCode.FAILED_PRECONDITION, "it did not say hello", agent)
        return first

    async def _turned_away(
        self, context: Any, code: grpc.StatusCode, why: str, agent: FleetIdentity | None
    ) -> NoReturn:
        """Tell why, once in the audit and once to the peer; raises."""
        await turned_away(self._fleet, context, code, why, agent)


def _shown(reported: Mapping[str, Any]) -> Certified | None:
    """The certificate that a peer has shown, which TLS has checked against the fleet's authority."""
    try:
        return certified(next(iter(reported.get("x509_pem_cert", ()))))
    except (StopIteration, ValueError):
        return None
