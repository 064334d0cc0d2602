"""`tailorbird gateway`: the process that serves agents and sends them their assignments. It stores nothing locally."""

from __future__ import annotations

import asyncio
import queue
import secrets
import signal
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import structlog

from cdc.model.errors import Retriable, TailorbirdError, UsageError
from cdc.oidc.claims import OidcSettings
from cdc.otel.http_metrics import send_metrics
from cdc.otel.http_spans import tracer_of
from cdc.process.file_topology import load_topology
from cdc.process.http_operation import serve_operation
from cdc.process.kafka_grants import check_grants
from cdc.process.proc_log_lines import log_lines
from cdc.process.verdict import HealthTracker
from cdc.topology.topology import Topology
from ingest.fleet.certificate import certified
from ingest.fleet.fleet_pb2 import StreamRequest
from ingest.fleet.identity import FleetIdentity, identity
from ingest.fleet.tokens import AGENT, SECRET, Guesses, checked
from ingest.gateway.commands import FleetCommands
from ingest.gateway.coordinator import Coordinator
from ingest.gateway.gateway_interfaces import AgentConnection, Audit, StateTopic
from ingest.gateway.grpc_server import AgentServer
from ingest.gateway.grpc_session import ServedSource
from ingest.gateway.kafka_audit import KafkaAudit
from ingest.gateway.kafka_source_positions import KafkaPositions
from ingest.gateway.kafka_sources import KafkaFleet
from ingest.gateway.kafka_state import KafkaState
from ingest.gateway.proc_handshakes import handshakes
from ingest.gateway.tenants import Tenants

Sourced = Callable[[FleetIdentity, str, int], ServedSource | None]
_ISSUE = "tailorbird fleet ca issue gateway NAME --into FOLDER"
_TURN = 1.0  # seconds at most between a coordinator's turns
# maximum messages of agents that wait for the coordinator, and their bytes; each stream has a limit, too
_UNHEARD, _UNHEARD_BYTES = 100_000, 64 * 1024 * 1024

log = structlog.get_logger()


def run(
    file: str,
    listen: str,
    folder: Path,
    api: str | None = None,
    tokens: str | None = None,
    tenants: Mapping[str, str] | None = None,
    oidc: Path | None = None,
    metrics_port: int = 0,
) -> None:
    """Serve agents at `listen` (host:port) until SIGTERM or SIGINT, with the certificate in `folder`.

    `tokens` is the address for agents that use tokens, `api` the one for operators. `file` is the topology of the
    gateway's own tenant; `tenants` maps other tenants to their topologies. `oidc` is the file of an issuer
    whose users may use `api` (`cdc.oidc.http_oidc`). `/metrics` and `/health` are served at `metrics_port` (0: not).
    It waits until Kafka is available. Raises
    UsageError if the certificate is not a gateway's, or an address is in use. However the process ends, agents connect
    again and recover.
    """
    log_lines("json")
    pem = {name: _read(folder / f"{name}.pem") for name in ("ca", "cert", "key")}
    gateway = _named(pem["cert"], folder)
    if gateway is None or gateway.role != "gateways":
        raise UsageError(f"{folder / 'cert.pem'} is not the certificate of a gateway", _ISSUE)
    topologies = _topologies({gateway.tenant: file, **(tenants or {})})
    settings: OidcSettings | None = None
    if api is not None:
        from ingest.gateway.http_api import check_address

        check_address(api)
    if oidc is not None:
        from cdc.oidc.http_oidc import load_oidc

        if api is None:
            raise UsageError("--oidc is only used by the REST API", "--api HOST:PORT")
        settings = load_oidc(oidc)
    standing = HealthTracker()
    send_metrics(topologies[gateway.tenant].name, "gateway")
    for topology in topologies.values():
        tracer_of(topology.name, "gateway")  # raises errors of its settings now
    if metrics_port:
        serve_operation(metrics_port, lambda: (standing.judge(time.monotonic()), {}))
    asyncio.run(_serve(topologies, gateway, (listen, tokens), pem, folder, api, settings, standing))


def _topologies(files: Mapping[str, str]) -> dict[str, Topology]:
    found = dict[str, Topology]()
    for tenant, file in files.items():
        identity(tenant, "agents", "any")  # raises UsageError for an invalid tenant name
        found[tenant] = load_topology(file, "gateway")
    if len({one.name for one in found.values()}) < len(found):
        raise UsageError(
            "the topologies of two tenants have the same name and would share topics", "rename one of them"
        )
    return found


async def _serve(
    topologies: Mapping[str, Topology],
    gateway: FleetIdentity,
    listen: tuple[str, str | None],
    pem: Mapping[str, bytes],
    folder: Path,
    api: str | None,
    oidc: OidcSettings | None,
    standing: HealthTracker,
) -> None:
    stopped, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    # unique per process, so that a restarted gateway does not own the leases of the previous one
    name = f"{gateway.name}#{secrets.token_hex(4)}"
    sessions = list[TenantSessions]()
    try:
        for tenant, topology in topologies.items():
            if (topics := await _opened(topology, stopped, standing)) is None:
                return
            sessions.append(TenantSessions(name, tenant, topology, *topics, standing))
        own, at, tokens = sessions[0].runtime, *listen
        agent_server = AgentServer(Tenants(gateway.tenant, {one.tenant: one.runtime for one in sessions}))

        def served() -> None:
            standing.ready()
            log.info("gateway serves", address=at)

        serving = [agent_server.serve(at, pem, stopped, served, tokens)]
        if api is not None:
            from ingest.gateway.http_api import serve_api

            serving.append(serve_api([one.commands for one in sessions], api, folder, stopped, oidc))
        with handshakes(own.handshake_failed):
            async with asyncio.TaskGroup() as tasks:
                for one in serving:
                    tasks.create_task(one)
    except* UsageError as failed:
        raise failed.exceptions[0] from None
    finally:
        stopped.set()
        for tenant_sessions in sessions:
            await asyncio.to_thread(tenant_sessions.close)


class TenantSessions:
    """The parts of a gateway for one tenant: the fleet's topics, the runtime with its coordinator, and the commands."""

    def __init__(
        self, name: str, tenant: str, topology: Topology, topic: KafkaState, audit: KafkaAudit, standing: HealthTracker
    ) -> None:
        self.tenant, self._topic, self._audit = tenant, topic, audit
        coordinator = coordinator_of(name, tenant, topology.name, topic, audit)
        self.runtime = GatewayRuntime(coordinator, KafkaFleet(topology, tenant, topic).source, audit, topic, standing)
        self.commands = commands_of(topology, topic, audit)
        topic.changed = self.runtime.wake

    def close(self) -> None:
        """Stop the runtime and close the topics."""
        for close in (self.runtime.close, self._topic.close, self._audit.close):
            close()


async def _opened(
    topology: Topology, stopped: asyncio.Event, standing: HealthTracker
) -> tuple[KafkaState, KafkaAudit] | None:
    """Open the topics, waiting until Kafka is available; None if the gateway was stopped before."""
    while not stopped.is_set():
        try:
            topics = await asyncio.to_thread(_topics, topology)
            standing.resumes(topology.name)
            return topics
        except Retriable as error:
            standing.waits(topology.name, str(error), time.monotonic())
            log.warning("waiting", why=str(error), seconds=error.retry_after)
            await _unless(stopped, error.retry_after)
    return None


def _topics(topology: Topology) -> tuple[KafkaState, KafkaAudit]:
    """Open the topics and read the fleet's state.

    Raises Retriable while Kafka is unavailable, and UsageError if Kafka denies something that a gateway needs.
    """
    check_grants(topology, "gateway")
    topics = KafkaState(topology.log, topology.name), KafkaAudit(topology.log, topology.name)
    check_grants(topology, "gateway")  # the right to write can only be asked for topics that exist
    return topics


async def _unless(stopped: asyncio.Event, seconds: float) -> None:
    try:
        await asyncio.wait_for(stopped.wait(), seconds)
    except TimeoutError:
        return


class GatewayRuntime:
    """Thread that runs a gateway's coordinator; it receives messages from the gRPC server and changes of the fleet's
    topic.

    Implements `grpc_streams.Fleet`. `standing` records whether the coordinator's turns succeed.
    """

    def __init__(
        self,
        coordinator: Coordinator,
        source: Sourced,
        audit: Audit,
        topic: StateTopic,
        standing: HealthTracker | None = None,
    ) -> None:
        self._standing = standing or HealthTracker()
        self._coordinator, self._source, self._audit, self._topic = coordinator, source, audit, topic
        self._handshakes = Guesses(most=60)
        self._put, self._got = 0, 0  # bytes of queued messages: added by one thread, removed by another
        self._heard: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="coordinator", daemon=True)
        self._thread.start()

    def serves(self, agent: FleetIdentity) -> bool:
        """Return whether the gateway serves the agent's tenant. Implements `Fleet`."""
        return agent.tenant == self._coordinator.tenant

    def source(self, agent: FleetIdentity, name: str, epoch: int) -> ServedSource | None:
        """Implements `Fleet.source`."""
        return self._source(agent, name, epoch)

    def revoked(self, agent: FleetIdentity, serial: str) -> bool:
        """Return whether an agent's certificate was revoked. Implements `Fleet`."""
        return serial in self._topic.state.revoked

    def bearer(self, token: str) -> FleetIdentity | str:
        """Return the agent to which a token belongs, or why the token is refused. Implements `Fleet`."""
        found = checked(token, dict(self._topic.state.tokens), time.time() * 1000)
        if isinstance(found, str):
            return found
        if found.role != AGENT:
            return f"token {found.id} is not an agent's token"
        return FleetIdentity(self._coordinator.tenant, "agents", found.name)

    def joined(self, agent_connection: AgentConnection, request: StreamRequest, version: str) -> None:
        """Register an agent that accepts assignments; `request` is its first message, with the field `ready`."""
        ready = request.ready
        places = {(place.connection, place.database) for place in ready.places}
        self._heard.put(lambda: self._coordinator.joined(agent_connection, dict(ready.labels), version, places))

    def heard(self, agent_connection: AgentConnection, request: StreamRequest) -> None:
        """Implements `Fleet.heard`. If the coordinator is overloaded, the stream ends and its agent reports again
        later.
        """
        size = request.ByteSize()
        if self._heard.qsize() > _UNHEARD or self._put - self._got + size > _UNHEARD_BYTES:
            agent_connection.end("the gateway is overloaded")
            return
        self._put += size

        def heard() -> None:
            self._got += size
            self._coordinator.heard(agent_connection, request)

        self._heard.put(heard)

    def left(self, agent_connection: AgentConnection) -> None:
        """Remove an agent whose stream has ended. Implements `Fleet`."""
        self._heard.put(lambda: self._coordinator.left(agent_connection))

    def refused(self, entry: Mapping[str, Any], agent: FleetIdentity | None = None) -> None:
        """Write a refusal to the audit log; `agent` is None if the peer is unknown. Implements `Fleet`."""
        try:
            self._audit.line(entry)
        except Retriable as error:
            log.warning("cannot write to the audit log", why=str(error), line=dict(entry))

    def handshake_failed(self, why: str) -> None:
        """Audit a failed TLS handshake of an unknown peer, at most 60 per minute."""
        now = time.monotonic()
        if self._handshakes.shut("", now) > 0:
            return
        self._handshakes.failed("", now)
        more = "; further ones are not audited for a while" if self._handshakes.shut("", now) > 0 else ""
        self.refused({"what": "dial", "who": None, "outcome": "turned away", "why": f"TLS: {why}{more}"})

    def wake(self) -> None:
        """Start a turn because the topic has changed. Thread-safe."""
        if self._heard.empty():
            self._heard.put(_nothing)

    def close(self) -> None:
        """Stop the thread."""
        self._heard.put(None)
        self._thread.join(10.0)

    def _work(self) -> None:
        due = 0.0
        while True:
            try:
                do = self._heard.get(timeout=max(0.01, due - time.monotonic()))
            except queue.Empty:
                do = _nothing
            if do is None:
                return
            self._do(do)
            if self._heard.empty() or time.monotonic() >= due:
                if self._do(self._coordinator.turn):
                    self._standing.resumes(self)
                due = time.monotonic() + _TURN

    def _do(self, do: Callable[[], None]) -> bool:
        """Call a function of the coordinator; return whether it succeeded."""
        try:
            do()
            return True
        except TailorbirdError as error:  # the next turn tries again
            log.warning("the coordinator waits", why=str(error))
            why = str(error)
        except Exception as error:  # only log it: without this thread no agent would receive assignments
            log.exception("the coordinator failed: internal error")
            why = f"internal error: {type(error).__name__}"
        self._standing.waits(self, f"the coordinator: {why}", time.monotonic())
        time.sleep(0.2)
        return False


def _nothing() -> None:
    """Do nothing; the loop then starts a turn."""


def coordinator_of(name: str, tenant: str, topology: str, topic: StateTopic, audit: Audit) -> Coordinator:
    """Return a coordinator with this process's clocks."""
    return Coordinator(
        name, tenant, topology, topic, audit,
        clock=time.monotonic, now_ms=lambda: int(time.time() * 1000), unique=lambda: secrets.token_hex(8),
    )  # fmt: skip


def commands_of(topology: Topology, topic: StateTopic, audit: Audit) -> FleetCommands:
    """Return the commands of a tenant with this process's clock and random secrets."""
    return FleetCommands(
        topic, audit, topology.name, KafkaPositions(topology),
        now_ms=lambda: int(time.time() * 1000), number=lambda: secrets.token_hex(8),
        secret=lambda: secrets.token_urlsafe(SECRET),
    )  # fmt: skip


def _named(pem: bytes, folder: Path) -> FleetIdentity | None:
    try:
        return certified(pem).who
    except ValueError as error:
        raise UsageError(f"{folder / 'cert.pem'} is not a certificate: {error}", _ISSUE) from error


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror}", _ISSUE) from error
