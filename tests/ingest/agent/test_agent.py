"""An agent and gateways over real sockets: what it is told to capture, as far as its policy goes, through whichever
gateway is there; the fleet's topic in memory, captures that only say that they run.
"""

from __future__ import annotations

import itertools
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import structlog

from cdc.model.errors import Fatal, Retriable
from ingest.agent import grpc_agent
from ingest.agent.grpc_agent import FleetAgent, Task
from ingest.agent.policy import LocalConnection, Narrowed
from ingest.fleet.catalog import DatabaseSeen, TableSeen
from ingest.fleet.desired import Desired, SourceSpec, spec_of
from ingest.fleet.fleet_pb2 import APPLIED
from ingest.fleet.identity import FleetIdentity
from ingest.fleet.reported import Reported
from ingest.fleet.state import desired_record
from ingest.gateway.grpc_session import ServedSource, SessionLog
from ingest.gateway.kafka_sources import HeldLease
from ingest.gateway.run_gateway import GatewayRuntime, coordinator_of
from ingest.gateway_client.gateway_log import GatewayLog
from ingest.gateway_client.grpc_stream import Credentials, Gateways
from tests.ingest.agent.test_policy import policy
from tests.ingest.fleet.test_session_handler import AT, Source, records
from tests.support.gateways import certificates, server_open
from tests.support.nearby_fleet import NearbyAudit, NearbyTopic

pytestmark = pytest.mark.timeout(120)
SPEC: dict[str, Any] = {"agents": ["a1"], "connection": "shop-db", "database": "shop", "tables": {"orders": {}}}


def until(holds: Callable[[], object], why: str = "") -> None:
    """Wait for a condition, half a minute at most."""
    deadline = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < deadline, why or "it never held"
        time.sleep(0.02)


class LeasedMemory(Source):
    """A source in memory that is recovered under a lease."""

    def __init__(self, held: HeldLease, broker: Any) -> None:
        self.held, self.broker = held, broker

    def log(self) -> SessionLog:
        self.held.check()
        return super().log()


class World:
    """A topic, gateways over it that a test opens and closes, one agent, and what it captures."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.topic, self.audit = folder, NearbyTopic(), NearbyAudit()
        self.broker = Source().broker
        self.running: dict[str, Task] = {}
        self.began = list[Task]()
        self.fails: Exception | None = None
        self.stopped, self._versions = threading.Event(), itertools.count(1)
        self._exit = ExitStack()
        self._gateways: dict[str, ExitStack] = {}
        self.agent = FleetAgent("a1", policy(), self.capture, self.catalog_seen)

    def gateway(self, name: str) -> str:
        """Open a gateway; its address."""
        coordinator = coordinator_of(f"{name}#{secrets.token_hex(2)}", "acme", "t", self.topic, self.audit)

        def source(agent: FleetIdentity, source: str, epoch: int) -> ServedSource | None:
            return LeasedMemory(HeldLease(self.topic, source, agent.name, epoch), self.broker)

        runtime = GatewayRuntime(coordinator, source, self.audit, self.topic)
        self._gateways[name] = self._exit.enter_context(ExitStack())
        self._gateways[name].callback(runtime.close)
        return self._gateways[name].enter_context(server_open(runtime, self.folder))

    def close_gateway(self, name: str) -> None:
        self._gateways[name].close()

    def dial(self, *addresses: str) -> None:
        streams = Gateways(
            addresses, Credentials.of(self.folder / "agent"), opened=self.agent.opened, commanded=self.agent.commanded
        )
        attending = threading.Thread(target=self.agent.attend, args=(streams, self.stopped))
        attending.start()
        self._exit.callback(streams.close)
        self._exit.callback(attending.join, 60)
        self._exit.callback(self.stopped.set)

    def desire(self, source: str = "s", **said: Any) -> int:
        version = next(self._versions)
        spec = spec_of({**SPEC, **said}, "t", source)
        self.topic.write(desired_record(Desired(source=source, version=version, spec=spec), f"test {version}"))
        return version

    def capture(self, task: Task) -> None:
        name = task.source.name
        assert name not in self.running, "two sessions of one source"
        self.running[name] = task
        self.began.append(task)
        try:
            if self.fails is not None:
                raise self.fails
            task.reported.now(APPLIED, task.restrictions)
            task.stopped.wait()
        finally:
            del self.running[name]

    def catalog_seen(self, local: LocalConnection, agent: str) -> Iterator[DatabaseSeen]:
        table = TableSeen(name="orders", rows=3, columns=(("id", "int"),))
        yield DatabaseSeen(agent=agent, connection=local.alias, database="shop", tables=(table,))

    def reported(self, source: str = "s") -> Reported | None:
        return self.topic.state.reported.get(("a1", source))

    def applied(self, version: int, source: str = "s") -> None:
        until(
            lambda: (
                (reported_now := self.reported(source)) is not None
                and (reported_now.version, reported_now.status) == (version, "applied")
            ),
            f"version {version} was not applied: {self.reported(source)}",
        )

    def close(self) -> None:
        self._exit.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    structlog.reset_defaults()
    return certificates(tmp_path_factory.mktemp("fleet"))


@pytest.fixture
def world(folder: Path) -> Iterator[World]:
    yield (made := World(folder))
    made.close()


def test_a_source_is_captured_changed_stopped(world: World) -> None:
    """By what the topic says, behind the policy; one session at a time, and the hash of what runs is told."""
    world.dial(world.gateway("g1"))
    world.applied(world.desire())
    assert world.running["s"].source.hostname == "10.0.0.5"
    until(lambda: world.topic.state.maps, "the map is told without being asked for")
    world.applied(world.desire(tables={"users": {}}))
    reported_now = world.reported()
    assert reported_now is not None
    assert (reported_now.narrowed, "mail" in reported_now.reason, len(reported_now.hash)) == (True, True, 16)
    assert [len(task.source.tables) for task in world.began] == [1, 1]
    world.desire(running=False)
    until(lambda: not world.running, "it was not stopped")


def test_a_map_that_can_not_be_drawn_stops_nothing(world: World) -> None:
    """A server's catalog of a kind that nobody has seen: the sources of the host are captured."""

    def broken(local: LocalConnection, agent: str) -> Iterator[DatabaseSeen]:
        raise KeyError("internal error")

    world.agent = FleetAgent("a1", policy(), world.capture, broken)
    world.dial(world.gateway("g1"))
    world.applied(world.desire())
    world.applied(world.desire(tables={"cards": {}}))


@pytest.mark.long
def test_what_the_policy_refuses_does_not_run_and_what_ran_goes_on(world: World) -> None:
    """The reason is told; the next version that is allowed runs."""
    world.dial(world.gateway("g1"))
    world.applied(world.desire())
    version = world.desire(tables={"salaries": {}})
    until(
        lambda: (
            (reported_now := world.reported()) is not None
            and (reported_now.version, reported_now.status) == (version, "failed")
        )
    )
    reported_now = world.reported()
    assert reported_now is not None
    assert "salaries may not leave" in reported_now.reason
    assert "the previous configuration keeps running" in reported_now.reason
    assert [str(table) for table in world.running["s"].source.tables] == ["s.shop.orders"]
    world.running["s"].reported.now(APPLIED, "its session says something")
    world.applied(world.desire())
    assert len(world.began) == 1, "it is what ran all the time"
    world.applied(world.desire(tables={"cards": {}}))
    assert [str(table) for table in world.running["s"].source.tables] == ["s.shop.cards"]


def test_a_configuration_that_trips_a_bug_is_that_sources_alone(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is told; the stream goes on, and with it all other sources."""
    narrowed = world.agent.narrowed

    def broken(spec: SourceSpec, topology: str, name: str) -> Narrowed:
        if name == "bad":
            raise KeyError("internal error")
        return narrowed(spec, topology, name)

    monkeypatch.setattr(world.agent, "narrowed", broken)
    world.dial(world.gateway("g1"))
    world.desire("bad")
    world.applied(world.desire("good"), "good")
    until(
        lambda: (
            (reported_now := world.reported("bad")) is not None
            and reported_now.status == "failed"
            and "KeyError" in reported_now.reason
        )
    )
    assert len(world.began) == 1


def test_a_source_that_is_refused_from_the_first_does_not_run(world: World) -> None:
    """Others of the same agent do."""
    world.dial(world.gateway("g1"))
    world.desire("bad", connection="root-db")
    world.applied(world.desire("good"), "good")
    until(lambda: (reported_now := world.reported("bad")) is not None and reported_now.status == "failed")
    assert set(world.running) == {"good"}


def test_a_session_that_fails_is_reported_and_tried_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """As long as the agent has the source."""
    monkeypatch.setattr(grpc_agent, "AGAIN", 0.1)
    world.fails = Fatal("the server writes no binary log", "set log_bin")
    world.dial(world.gateway("g1"))
    version = world.desire()
    until(
        lambda: (
            (reported_now := world.reported()) is not None
            and reported_now.status == "failed"
            and "log_bin" in reported_now.reason
        )
    )
    world.fails = None
    world.applied(version)


def test_a_session_that_ends_of_a_bug_is_reported_and_begun_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its thread dies of nothing: else nobody would capture the source, while the agent holds its lease."""
    monkeypatch.setattr(grpc_agent, "AGAIN", 0.1)
    world.fails = KeyError("a value")
    world.dial(world.gateway("g1"))
    version = world.desire()
    until(
        lambda: (
            (reported_now := world.reported()) is not None
            and reported_now.status == "failed"
            and "KeyError" in reported_now.reason
        )
    )
    reported_now = world.reported()
    assert reported_now is not None
    assert "a value" not in reported_now.reason, "what internal error says may hold rows, which may not leave"
    world.fails = None
    world.applied(version)


def test_a_gateway_that_dies_is_replaced_and_the_older_epoch_is_refused(world: World) -> None:
    """The agent dials the next one, under a new epoch: lanes of the older one are told so, and its stream goes on."""
    first, second = world.gateway("g1"), world.gateway("g2")
    world.dial(first, second)
    world.applied(world.desire())
    (before,) = world.began
    log = GatewayLog(before.channels(), "s")
    log.recover()
    log.extend(records(3))
    log.commit(AT)
    assert world.topic.state.leases["s"].epoch == 1
    world.close_gateway("g1")
    until(lambda: world.topic.state.leases["s"].epoch == 2, "the lease did not move")
    until(lambda: len(world.began) == 2, "no session under the new lease")
    with pytest.raises(Retriable):
        log.commit(AT)
    again = GatewayLog(world.began[1].channels(), "s")
    assert again.recover().checkpoint == AT
    stale = GatewayLog(before.channels(), "s")
    with pytest.raises(Retriable, match="has no lease of source s at epoch 1: agent a1 has it at epoch 2"):
        stale.recover()
    again.commit(AT)
    again.close()
    assert len(world.broker.records) == 3


def test_what_another_agent_has_got_meanwhile_is_let_go(world: World) -> None:
    """A session under a lease that ended while the agent was away ends when it comes back."""
    address = world.gateway("g1")
    world.dial(address)
    world.applied(world.desire())
    world.close_gateway("g1")
    world.desire(agents=["a2"])
    second = world.gateway("g2")
    streams = Gateways(
        [second], Credentials.of(world.folder / "agent"), opened=world.agent.opened, commanded=world.agent.commanded
    )
    until(lambda: _dialled(streams))
    until(lambda: not world.running, "it goes on without a lease")
    streams.close()


def _dialled(streams: Gateways) -> bool:
    try:
        streams.stream()
    except Retriable:
        return False
    return True
