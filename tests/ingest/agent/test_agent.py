"""An agent and gateways over real sockets: assignments, the policy, and changes of gateways.

The fleet's topic is in memory, and captures only report that they run.
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

from cdc.model.errors import Fatal, Retriable
from ingest.agent import grpc_agent
from ingest.agent.grpc_agent import FleetAgent
from ingest.agent.grpc_tasks import Task
from ingest.agent.policy import LocalConnection, NarrowedSource
from ingest.fleet.catalog import DatabaseSeen, TableSeen
from ingest.fleet.desired import DesiredSource, SourceSpec, spec_of
from ingest.fleet.fleet_pb2 import APPLIED
from ingest.fleet.identity import FleetIdentity
from ingest.fleet.reported import SourceReport
from ingest.fleet.state import desired_record
from ingest.gateway.grpc_session import ServedSource
from ingest.gateway.kafka_sources import HeldLease
from ingest.gateway.run_gateway import GatewayRuntime, coordinator_of
from ingest.gateway_client.gateway_log import GatewayLog
from ingest.gateway_client.grpc_stream import Credentials, Gateways
from ingest.records.capture_interfaces import SessionLog
from tests.ingest.agent.test_policy import policy
from tests.ingest.fleet.test_session_handler import AT, Source, records
from tests.support.gateways import server_open
from tests.support.nearby_fleet import NearbyAudit, NearbyTopic

pytestmark = pytest.mark.timeout(120)
SPEC: dict[str, Any] = {"agents": ["a1"], "connection": "shop-db", "database": "shop", "tables": {"orders": {}}}


def until(holds: Callable[[], object], why: str = "") -> None:
    """Wait for a condition, half a minute at most."""
    deadline = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < deadline, why or "the condition was never met"
        time.sleep(0.02)


class LeasedMemory(Source):
    """A source in memory that recovers under a lease."""

    def __init__(self, held: HeldLease, broker: Any) -> None:
        self.held, self.broker = held, broker

    def log(self) -> SessionLog:
        self.held.check()
        return super().log()


class World:
    """A topic, its gateways, which a test opens and closes, one agent, and its captures."""

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
        """Open a gateway and return its address."""
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
        self.topic.write(desired_record(DesiredSource(source=source, version=version, spec=spec), f"test {version}"))
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

    def reported(self, source: str = "s") -> SourceReport | None:
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


def test_a_source_is_captured_changed_stopped(world: World) -> None:
    """The agent applies the topic's configuration within its policy, one session at a time, and reports its hash."""
    world.dial(world.gateway("g1"))
    world.applied(world.desire())
    assert world.running["s"].source.hostname == "10.0.0.5"
    until(lambda: world.topic.state.maps, "the catalog is reported unasked")
    world.applied(world.desire(tables={"users": {}}))
    reported_now = world.reported()
    assert reported_now is not None
    assert (reported_now.narrowed, "mail" in reported_now.reason, len(reported_now.hash)) == (True, True, 16)
    assert [len(task.source.tables) for task in world.began] == [1, 1]
    world.desire(running=False)
    until(lambda: not world.running, "it was not stopped")


def test_an_unreadable_catalog_stops_no_source(world: World) -> None:
    """If the catalog cannot be read, the sources of the host are still captured."""

    def broken(local: LocalConnection, agent: str) -> Iterator[DatabaseSeen]:
        raise KeyError("internal error")

    world.agent = FleetAgent("a1", policy(), world.capture, broken)
    world.dial(world.gateway("g1"))
    world.applied(world.desire())
    world.applied(world.desire(tables={"cards": {}}))


@pytest.mark.long
def test_a_refused_version_does_not_run_and_the_previous_one_keeps_running(world: World) -> None:
    """The gateway receives the reason. The next allowed version runs."""
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
    world.running["s"].reported.now(APPLIED, "its session reports")
    world.applied(world.desire())
    assert len(world.began) == 1, "the same session has run all the time"
    world.applied(world.desire(tables={"cards": {}}))
    assert [str(table) for table in world.running["s"].source.tables] == ["s.shop.cards"]


def test_an_internal_error_in_one_configuration_does_not_affect_other_sources(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is reported. The stream and all other sources continue."""
    narrowed = world.agent.narrowed

    def broken(spec: SourceSpec, topology: str, name: str) -> NarrowedSource:
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


def test_a_source_that_is_refused_at_first_does_not_run(world: World) -> None:
    """Other sources of the same agent run."""
    world.dial(world.gateway("g1"))
    world.desire("bad", connection="root-db")
    world.applied(world.desire("good"), "good")
    until(lambda: (reported_now := world.reported("bad")) is not None and reported_now.status == "failed")
    assert set(world.running) == {"good"}


def test_a_session_that_fails_is_reported_and_tried_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is tried again as long as the source is assigned to the agent."""
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


def test_a_session_that_ends_with_an_internal_error_is_reported_and_restarted(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No error ends the thread. Otherwise the source would stay uncaptured while the agent holds its lease."""
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
    assert "a value" not in reported_now.reason, (
        "the message of an internal error may contain rows, so it is not reported"
    )
    world.fails = None
    world.applied(version)


def test_a_gateway_that_dies_is_replaced_and_the_older_epoch_is_refused(world: World) -> None:
    """The agent connects to the next one, with a new epoch. Session channels of the older epoch fail; the stream
    continues.
    """
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
    until(lambda: world.topic.state.leases["s"].epoch == 2, "the lease has not moved")
    until(lambda: len(world.began) == 2, "there is no session with the new lease")
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


def test_a_source_that_another_agent_took_over_is_released(world: World) -> None:
    """If the lease ended while the agent was disconnected, its session ends when it reconnects."""
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
    until(lambda: not world.running, "it continues without a lease")
    streams.close()


def _dialled(streams: Gateways) -> bool:
    try:
        streams.stream()
    except Retriable:
        return False
    return True
