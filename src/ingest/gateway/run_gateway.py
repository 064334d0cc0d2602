"""`tailorbird gateway`: one process that serves agents and commands them until it is told to stop; it keeps nothing."""

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
from cdc.process.file_topology import load_topology
from cdc.process.proc_log_lines import log_lines
from cdc.topology.topology import Topology
from ingest.fleet.certificate import certified
from ingest.fleet.fleet_pb2 import StreamRequest
from ingest.fleet.identity import FleetIdentity, identity
from ingest.fleet.tokens import AGENT, SECRET, Guesses, checked
from ingest.gateway.commands import FleetCommands
from ingest.gateway.coordinator import Coordinator
from ingest.gateway.gateway_interfaces import AgentConnection, Audit, StateTopic
from ingest.gateway.grpc_server import AgentServer
from ingest.gateway.grpc_session import Opened
from ingest.gateway.kafka_audit import KafkaAudit
from ingest.gateway.kafka_source_positions import KafkaPositions
from ingest.gateway.kafka_sources import KafkaFleet
from ingest.gateway.kafka_state import KafkaState
from ingest.gateway.proc_handshakes import handshakes
from ingest.gateway.tenants import Tenants

Sourced = Callable[[FleetIdentity, str, int], Opened | None]
_ISSUE = "tailorbird fleet ca issue gateway NAME --into FOLDER"
_TURN = 1.0  # seconds at most between a steward's turns
# of agents' words what the steward has not heard yet; how many, and bytes: their streams are bounded, too
_UNHEARD, _UNHEARD_BYTES = 100_000, 64 * 1024 * 1024

log = structlog.get_logger()


def run(
    file: str,
    listen: str,
    folder: Path,
    api: str | None = None,
    tokens: str | None = None,
    tenants: Mapping[str, str] | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT at `listen` (host:port), as whom the certificate in `folder` says; agents that have
    tokens at `tokens`, and operators at `api`, where they are named. `file` is the topology of the gateway's own
    tenant, `tenants` those of others. Kafka is waited for first.

    UsageError where that is no gateway's, or an address can not be had. However it ends, agents dial anew and recover.
    """
    log_lines("json")
    pem = {name: _read(folder / f"{name}.pem") for name in ("ca", "cert", "key")}
    gateway = _named(pem["cert"], folder)
    if gateway is None or gateway.role != "gateways":
        raise UsageError(f"{folder / 'cert.pem'} is no gateway's", "tailorbird fleet ca issue gateway NAME")
    topologies = _topologies({gateway.tenant: file, **(tenants or {})})
    if api is not None:
        from ingest.gateway.http_api import check_address

        check_address(api)
    asyncio.run(_serve(topologies, gateway, (listen, tokens), pem, folder, api))


def _topologies(files: Mapping[str, str]) -> dict[str, Topology]:
    found = dict[str, Topology]()
    for tenant, file in files.items():
        identity(tenant, "agents", "any")  # refuses what is no tenant's name
        found[tenant] = load_topology(file)
    if len({one.name for one in found.values()}) < len(found):
        raise UsageError(
            "two tenants have a topology of one name, whose topics would be the same", "rename one of them"
        )
    return found


async def _serve(
    topologies: Mapping[str, Topology],
    gateway: FleetIdentity,
    listen: tuple[str, str | None],
    pem: Mapping[str, bytes],
    folder: Path,
    api: str | None,
) -> None:
    stopped, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    # a process of the same name that is killed and started again is another one: its leases are its own
    name = f"{gateway.name}#{secrets.token_hex(4)}"
    desks = list[TenantSessions]()
    try:
        for tenant, topology in topologies.items():
            if (topics := await _opened(topology, stopped)) is None:
                return
            desks.append(TenantSessions(name, tenant, topology, *topics))
        own, at, tokens = desks[0].runtime, *listen
        agent_server = AgentServer(
            Tenants(gateway.tenant, {session_handler.tenant: session_handler.runtime for session_handler in desks})
        )
        serving = [agent_server.serve(at, pem, stopped, lambda: log.info("gateway serves", address=at), tokens)]
        if api is not None:
            from ingest.gateway.http_api import serve_api

            serving.append(serve_api([session_handler.commands for session_handler in desks], api, folder, stopped))
        with handshakes(own.handshake_failed):
            async with asyncio.TaskGroup() as tasks:
                for one in serving:
                    tasks.create_task(one)
    except* UsageError as failed:
        raise failed.exceptions[0] from None
    finally:
        stopped.set()
        for session_handler in desks:
            await asyncio.to_thread(session_handler.close)


class TenantSessions:
    """What a gateway has for one tenant: the fleet's topics, a steward in its office, and commands."""

    def __init__(self, name: str, tenant: str, topology: Topology, topic: KafkaState, audit: KafkaAudit) -> None:
        self.tenant, self._topic, self._audit = tenant, topic, audit
        coordinator = coordinator_of(name, tenant, topology.name, topic, audit)
        self.runtime = GatewayRuntime(coordinator, KafkaFleet(topology, tenant, topic).source, audit, topic)
        self.commands = commands_of(topology, topic, audit)
        topic.changed = self.runtime.wake

    def close(self) -> None:
        """End all of it."""
        for close in (self.runtime.close, self._topic.close, self._audit.close):
            close()


async def _opened(topology: Topology, stopped: asyncio.Event) -> tuple[KafkaState, KafkaAudit] | None:
    """The topics, once Kafka is there; None where it was stopped before."""
    while not stopped.is_set():
        try:
            return await asyncio.to_thread(_topics, topology)
        except Retriable as error:
            log.warning("waiting", why=str(error), seconds=error.retry_after)
            await _unless(stopped, error.retry_after)
    return None


def _topics(topology: Topology) -> tuple[KafkaState, KafkaAudit]:
    """What is in the fleet's topic is read first; Retriable while Kafka is away."""
    return KafkaState(topology.log, topology.name), KafkaAudit(topology.log, topology.name)


async def _unless(stopped: asyncio.Event, seconds: float) -> None:
    try:
        await asyncio.wait_for(stopped.wait(), seconds)
    except TimeoutError:
        return


class GatewayRuntime:
    """A gateway's steward in its thread, between the door and the fleet's topic; implements `grpc_door.Fleet`."""

    def __init__(self, coordinator: Coordinator, source: Sourced, audit: Audit, topic: StateTopic) -> None:
        self._coordinator, self._source, self._audit, self._topic = coordinator, source, audit, topic
        self._handshakes = Guesses(most=60)
        self._put, self._got = 0, 0  # bytes of words, each counted in one thread
        self._heard: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="steward", daemon=True)
        self._thread.start()

    def serves(self, agent: FleetIdentity) -> bool:
        """See `grpc_streams.Fleet`."""
        return agent.tenant == self._coordinator.tenant

    def source(self, agent: FleetIdentity, name: str, epoch: int) -> Opened | None:
        """See `grpc_door.Fleet`."""
        return self._source(agent, name, epoch)

    def revoked(self, agent: FleetIdentity, serial: str) -> bool:
        """See `grpc_door.Fleet`."""
        return serial in self._topic.state.revoked

    def bearer(self, token: str) -> FleetIdentity | str:
        """See `grpc_door.Fleet`."""
        found = checked(token, dict(self._topic.state.tokens), time.time() * 1000)
        if isinstance(found, str):
            return found
        if found.role != AGENT:
            return f"token {found.id} is no agent's"
        return FleetIdentity(self._coordinator.tenant, "agents", found.name)

    def joined(self, agent_connection: AgentConnection, request: StreamRequest, version: str) -> None:
        """See `grpc_door.Fleet`."""
        ready = request.ready
        places = {(place.connection, place.database) for place in ready.places}
        self._heard.put(lambda: self._coordinator.joined(agent_connection, dict(ready.labels), version, places))

    def heard(self, agent_connection: AgentConnection, request: StreamRequest) -> None:
        """See `grpc_door.Fleet`; while the steward has too much to do, the stream is ended: its agent says it again."""
        size = request.ByteSize()
        if self._heard.qsize() > _UNHEARD or self._put - self._got + size > _UNHEARD_BYTES:
            agent_connection.end("the gateway has too much to do")
            return
        self._put += size

        def heard() -> None:
            self._got += size
            self._coordinator.heard(agent_connection, request)

        self._heard.put(heard)

    def left(self, agent_connection: AgentConnection) -> None:
        """See `grpc_door.Fleet`."""
        self._heard.put(lambda: self._coordinator.left(agent_connection))

    def refused(self, said: Mapping[str, Any], agent: FleetIdentity | None = None) -> None:
        """See `grpc_door.Fleet`."""
        try:
            self._audit.line(said)
        except Retriable as error:
            log.warning("not kept in the audit", why=str(error), line=dict(said))

    def handshake_failed(self, why: str) -> None:
        """TLS has turned somebody away, whom nobody knows; a few lines a minute, one stands for all that follow."""
        now = time.monotonic()
        if self._handshakes.shut("", now) > 0:
            return
        self._handshakes.failed("", now)
        more = "; more of them are not told for a while" if self._handshakes.shut("", now) > 0 else ""
        self.refused({"what": "dial", "who": None, "outcome": "turned away", "why": f"TLS: {why}{more}"})

    def wake(self) -> None:
        """The topic has changed; any thread may call it."""
        if self._heard.empty():
            self._heard.put(_nothing)

    def close(self) -> None:
        """End the thread."""
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
                self._do(self._coordinator.turn)
                due = time.monotonic() + _TURN

    def _do(self, do: Callable[[], None]) -> None:
        try:
            do()
        except TailorbirdError as error:  # the next turn does what this one could not
            log.warning("the steward waits", why=str(error))
            time.sleep(0.2)
        except Exception:  # told; without a steward nobody would be commanded, nor would it be seen
            log.exception("the steward could not do it")
            time.sleep(0.2)


def _nothing() -> None:
    """Time for a turn."""


def coordinator_of(name: str, tenant: str, topology: str, topic: StateTopic, audit: Audit) -> Coordinator:
    """A steward with this process's clocks."""
    return Coordinator(
        name, tenant, topology, topic, audit,
        clock=time.monotonic, now_ms=lambda: int(time.time() * 1000), unique=lambda: secrets.token_hex(8),
    )  # fmt: skip


def commands_of(topology: Topology, topic: StateTopic, audit: Audit) -> FleetCommands:
    """Commands with this process's clock and secrets."""
    return FleetCommands(
        topic, audit, topology.name, KafkaPositions(topology),
        now_ms=lambda: int(time.time() * 1000), number=lambda: secrets.token_hex(8),
        secret=lambda: secrets.token_urlsafe(SECRET),
    )  # fmt: skip


def _named(pem: bytes, folder: Path) -> FleetIdentity | None:
    try:
        return certified(pem).who
    except ValueError as error:
        raise UsageError(f"{folder / 'cert.pem'} is no certificate: {error}", _ISSUE) from error


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror}", _ISSUE) from error
