"""The gRPC server for agents: accepts streams over mTLS, and runs a session handler for each session channel.

It refuses unknown agents, headers that differ from the certificate, and revoked or expired certificates. The last check
is repeated while a stream is open.
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
from ingest.fleet.certificate import CertificateContent, certified
from ingest.fleet.fleet_pb2 import StreamRequest
from ingest.fleet.identity import FleetIdentity
from ingest.fleet.message_checks import foreign_reason, invalid_reason
from ingest.fleet.request_types import plugin_key
from ingest.fleet.tokens import Guesses
from ingest.fleet.wire import GATEWAY_OPTIONS, PROTOCOL, RPC, SERVICE, hello
from ingest.gateway.agent_use import AgentUse
from ingest.gateway.grpc_streams import AgentStream, Fleet, reject
from ingest.gateway.proc_credit import CreditBudget

_VERSION = version("tailorbird")
_FIRST = 10.0  # seconds for the first message
_STREAMS = 64  # maximum number of streams per agent: each capture with a topology of its own opens one
_WATCH = 1.0  # seconds between checks of open streams

_GUESSED = "too many wrong tokens from this address: refused for a while"
Validity = Callable[[], str]  # returns why the credentials are no longer valid, or an empty text

log = structlog.get_logger()


class AgentServer:
    """Server of `Fleet.Connect` in fleet.proto."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._open: dict[AgentStream, Validity] = {}
        self._uses: dict[FleetIdentity, AgentUse] = {}  # also of agents without a stream, so that no limit begins again
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
        """Serve until `stopped`; `serves` is called once agents can connect.

        `pem` contains the fleet's `ca`, and the gateway's `cert` and `key`. `tokens` is the address for agents without
        a certificate, because Python's gRPC cannot accept both on one port. Raises UsageError if an address is
        unavailable.
        """
        pair = [(pem["key"], pem["cert"])]
        ports = {address: grpc.ssl_server_credentials(pair, root_certificates=pem["ca"], require_client_auth=True)}
        if tokens is not None:
            ports[tokens] = grpc.ssl_server_credentials(pair)
        server = grpc.aio.server(options=GATEWAY_OPTIONS)
        handler = grpc.stream_stream_rpc_method_handler(
            self.connect,
            request_deserializer=bytes,  # not parsed here: `_read` does that and audits malformed messages
            response_serializer=StreamRequest.SerializeToString,
        )
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, {RPC: handler}),))
        for port, credentials in ports.items():
            try:
                server.add_secure_port(port, credentials)
            except RuntimeError as error:
                raise UsageError(f"cannot listen on {port}", "check that no other gateway is running") from error
        await server.start()
        serves()
        async with asyncio.TaskGroup() as tasks:  # raises the error with which `_watch` ended
            watching = tasks.create_task(self._watch())
            await stopped.wait()
            watching.cancel()
        for stream in self._open:
            stream.end("this gateway stops: connect to another one")
        await server.stop(1.0)

    async def _watch(self) -> None:
        """End streams whose credentials are no longer valid, and session channels of silent agents."""
        while True:
            await asyncio.sleep(_WATCH)
            for stream, invalid in list(self._open.items()):
                stream.check_silence()
                if why := invalid():
                    stream.end_unauthenticated(why)

    async def connect(self, requests: Any, context: grpc.aio.ServicerContext[StreamRequest, StreamRequest]) -> None:
        """Serve one stream of one agent."""
        agent, invalid = await self._authenticate(context)
        if not self._fleet.serves(agent):
            why = f"this gateway does not serve tenant {agent.tenant}"
            await self._reject(context, grpc.StatusCode.PERMISSION_DENIED, why, agent)
        heard = self._read(requests, context, agent)
        first = await self._first(heard, context, agent)
        if first.hello.protocol != PROTOCOL:
            what = f"protocol {first.hello.protocol}; this gateway uses {PROTOCOL}"
            await self._reject(context, grpc.StatusCode.FAILED_PRECONDITION, what, agent)
        if sum(one.agent == agent for one in self._open) >= _STREAMS:
            what = f"more than {_STREAMS} streams of one agent"
            await self._reject(context, grpc.StatusCode.RESOURCE_EXHAUSTED, what, agent)
        use = self._uses.setdefault(agent, AgentUse())
        stream = AgentStream(self._fleet, agent, context, first.hello, self._budget, use)
        self._open[stream] = invalid
        try:
            log.info("agent connected", agent=agent.uri, peer=context.peer(), version=first.hello.version)
            await context.write(hello(_VERSION))
            await stream.run(heard)
        finally:
            del self._open[stream]
            stream.close()
            log.info("agent disconnected", agent=agent.uri, peer=context.peer())

    async def _authenticate(self, context: Any) -> tuple[FleetIdentity, Validity]:
        """Return the agent of a stream, and a function that checks its credentials again. Rejects invalid ones."""
        shown = _shown(context.auth_context())
        if shown is None:
            return await self._bearer(context)
        agent = shown.who
        if agent is None or agent.role != "agents":
            await self._reject(context, grpc.StatusCode.UNAUTHENTICATED, "not the certificate of an agent", agent)

        def invalid() -> str:
            if self._fleet.revoked(agent, shown.serial):
                return f"certificate {shown.serial} was revoked"
            return f"certificate {shown.serial} has expired" if time.time() >= shown.ends else ""

        if why := invalid():
            await self._reject(context, grpc.StatusCode.UNAUTHENTICATED, why, agent)
        return agent, invalid

    async def _bearer(self, context: Any) -> tuple[FleetIdentity, Validity]:
        """Authenticate by the token in the call's metadata. Wrong tokens do not lock out valid ones.

        While an address is refused for wrong tokens, they are not audited one by one.
        """
        address, now = context.peer().rpartition(":")[0], time.monotonic()
        header = dict(context.invocation_metadata() or ()).get("authorization", "")
        token = str(header).removeprefix("Bearer ")
        agent = self._fleet.bearer(token)
        if isinstance(agent, str):
            if self._guesses.shut(address, now) > 0:
                await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, _GUESSED)
            self._guesses.failed(address, now)
            shut = f"; {_GUESSED}" if self._guesses.shut(address, now) > 0 else ""
            await self._reject(context, grpc.StatusCode.UNAUTHENTICATED, agent + shut, None)

        def invalid() -> str:
            found = self._fleet.bearer(token)
            return found if isinstance(found, str) else ""

        return agent, invalid

    async def _read(self, requests: Any, context: Any, agent: FleetIdentity) -> AsyncIterator[StreamRequest]:
        async for content in requests:
            try:
                request = StreamRequest.FromString(content)
            except DecodeError:
                why = f"{len(content)} bytes that are not a complete message"
                await self._reject(context, grpc.StatusCode.INVALID_ARGUMENT, why, agent)
            if why := foreign_reason(request, agent):
                await self._reject(context, grpc.StatusCode.PERMISSION_DENIED, why, agent)
            yield request

    async def _first(self, requests: Any, context: Any, agent: FleetIdentity) -> StreamRequest:
        try:
            first: StreamRequest = await asyncio.wait_for(anext(requests), _FIRST)
        except (TimeoutError, StopAsyncIteration):
            await self._reject(context, grpc.StatusCode.DEADLINE_EXCEEDED, "it sent no message", agent)
        if why := invalid_reason(first):
            await self._reject(context, grpc.StatusCode.INVALID_ARGUMENT, why, agent)
        try:
            plugin_key(first, former=True)
        except ValueError as error:
            await self._reject(context, grpc.StatusCode.INVALID_ARGUMENT, str(error), agent)
        if first.WhichOneof("payload") != "hello":
            await self._reject(context, grpc.StatusCode.FAILED_PRECONDITION, "its first message is not hello", agent)
        return first

    async def _reject(self, context: Any, code: grpc.StatusCode, why: str, agent: FleetIdentity | None) -> NoReturn:
        """End the stream with a reason, in the audit log and to the peer. Always raises."""
        await reject(self._fleet, context, code, why, agent)


def _shown(auth_context: Mapping[str, Any]) -> CertificateContent | None:
    """Return the peer's certificate, which TLS has verified against the fleet's CA; None if there is none."""
    try:
        return certified(next(iter(auth_context.get("x509_pem_cert", ()))))
    except (StopIteration, ValueError):
        return None
