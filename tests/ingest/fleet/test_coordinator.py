"""Coordinators over one topic: agents connect, disconnect and change gateways; each source has one holder."""

from __future__ import annotations

import itertools
import random
from collections.abc import Collection
from contextlib import suppress

import orjson
import pytest

from cdc.model.errors import Retriable
from ingest.fleet.catalog import DatabaseSeen, TableSeen, packed
from ingest.fleet.desired import DesiredSource, SourceSpec
from ingest.fleet.fleet_pb2 import (
    FAILED,
    Control_MaxScale,
    Control_MSSQLClient,
    Control_MySQLBinlog,
    Control_PgSQLLogDec,
    MapPart,
    Report,
    StreamRequest,
)
from ingest.fleet.leases import Lease
from ingest.fleet.state import StateRecord, desired_record, drained_record, lease_record, map_record
from ingest.gateway.coordinator import GRACE, SILENT, Coordinator
from ingest.gateway.gateway_interfaces import AgentConnection
from tests.support.nearby_fleet import NearbyAudit, NearbyConnection, NearbyTopic, agent_connection


class Prompt(Coordinator):
    """Takes a turn for each agent that connects, like an idle gateway."""

    def joined(
        self,
        agent_connection: AgentConnection,
        labels: dict[str, str],
        version: str,
        places: Collection[tuple[str, str]] = (),
    ) -> None:
        super().joined(agent_connection, labels, version, places)
        self.turn()


class World:
    """Gateways over one topic, and a clock that the test sets."""

    def __init__(self, *gateways: str) -> None:
        self.topic, self.audit, self.now = NearbyTopic(), NearbyAudit(), 0.0
        self._unique = itertools.count()
        self.stewards = {name: self.coordinator(name) for name in gateways}

    def coordinator(self, name: str) -> Coordinator:
        return Prompt(
            f"{name}#1", "acme", "t", self.topic, self.audit,
            clock=lambda: self.now, now_ms=lambda: int(self.now * 1000),
            unique=lambda: f"claim {next(self._unique)}",
        )  # fmt: skip

    def desire(self, source: str, *agents: str, version: int = 1, running: bool = True) -> None:
        spec = SourceSpec(agents=agents, connection="db", running=running, keys={"database": "d", "tables": {"t": {}}})
        self.topic.write(desired_record(DesiredSource(source=source, version=version, spec=spec), f"test {version}"))

    def turns(self, seconds: float = 0.0, *, without: str = "") -> None:
        for _ in range(max(1, int(seconds))):
            self.now += min(seconds, 1.0)
            for name, coordinator in self.stewards.items():
                if name != without:
                    coordinator.turn()


def test_an_agent_receives_its_assignments() -> None:
    """It receives them once when it connects, when the configuration changes, and when the source is stopped."""
    world = World("g1")
    world.desire("s", "a1")
    there = agent_connection("a1")
    world.stewards["g1"].joined(there, {}, "1")
    assert there.holds == {"s": (1, 1)}
    assert orjson.loads(there.specs["s"])["tables"] == {"t": {}}
    world.desire("s", "a1", version=2)
    world.turns()
    assert there.holds == {"s": (1, 2)}, "the same lease, another version"
    world.desire("s", "a1", version=3, running=False)
    world.turns()
    assert (there.holds, there.why) == ({}, {"s": "the source is stopped"})
    world.desire("s", "a1", version=4)
    world.turns()
    assert there.holds == {"s": (3, 4)}
    assert [line["how"] for line in world.audit.lines] == ["epoch 1", "epoch 2", "epoch 3"]


def test_an_assignment_is_for_the_plugin_of_its_source() -> None:
    """A configuration without a type is for MySQL, as in the previous release."""
    world, keys = World("g1"), {"database": "d", "tables": {"t": {}}}
    for source, more in (("old", {}), ("new", {"type": "postgresql"})):
        spec = SourceSpec(agents=("a1",), connection="db", keys={**keys, **more})
        world.topic.write(desired_record(DesiredSource(source=source, version=1, spec=spec), "test"))
    there = agent_connection("a1")
    world.stewards["g1"].joined(there, {}, "1")
    assert there.keys == {"old": Control_MySQLBinlog, "new": Control_PgSQLLogDec}


def test_a_full_agent_receives_the_rest_later() -> None:
    """The gateway does not queue a thousand configurations in memory."""
    world = World("g1")
    for number in range(3):
        world.desire(f"s{number}", "a1")
    there = agent_connection("a1")
    there.full = True
    world.stewards["g1"].joined(there, {}, "1")
    assert there.holds == {}
    there.full = False
    world.turns(1)
    assert set(there.holds) == {"s0", "s1", "s2"}


def test_an_agent_that_changes_gateways_keeps_its_sources() -> None:
    """Also if the first gateway notices the end of the stream late, and writes it."""
    world = World("g1", "g2")
    world.desire("s", "a1")
    old, new = agent_connection("a1"), agent_connection("a1")
    world.stewards["g1"].joined(old, {}, "1")
    world.turns()
    world.stewards["g2"].joined(new, {}, "1")
    world.turns(3)
    assert new.holds == {"s": (2, 1)}
    assert old.ended == "the agent has connected to another gateway"
    world.stewards["g1"].left(old)
    world.turns(3)
    assert world.topic.state.leases["s"].admits("a1", 2)
    assert world.topic.state.presences["a1"].gateway == "g2#1"


def test_a_late_record_that_an_agent_left_is_corrected() -> None:
    """If two gateways write at once, the one with the stream writes again."""
    world = World("g1", "g2")
    world.desire("s", "a1")
    old, new = agent_connection("a1"), agent_connection("a1")
    world.stewards["g1"].joined(old, {}, "1")
    late = [record for record in world.topic.records if record[0].startswith(b'["agent"')][-1]
    assert late[1] is not None
    gone = late[0], late[1].replace(b'"connected":true', b'"connected":false')
    world.stewards["g2"].joined(new, {}, "1")
    world.topic.write(gone)
    world.turns(3, without="g1")
    assert new.ended == ""
    assert world.topic.state.presences["a1"].connected
    assert world.topic.state.leases["s"].gateway == "g2#1"


def test_an_agent_that_connects_again_has_one_connection() -> None:
    """The older stream ends, and the lease stays."""
    world = World("g1")
    world.desire("s", "a1")
    old, new = agent_connection("a1"), agent_connection("a1")
    world.stewards["g1"].joined(old, {}, "1")
    world.stewards["g1"].joined(new, {}, "1")
    world.stewards["g1"].left(old)
    world.turns()
    assert (old.ended, new.ended) == ("the agent has connected again", "")
    assert new.holds == {"s": (1, 1)}
    assert world.topic.state.presences["a1"].connected


def test_another_agent_takes_over_after_a_while() -> None:
    """It waits, because streams break, and does nothing while the first agent is connected."""
    world = World("g1", "g2")
    world.desire("s", "a1", "a2")
    first, second = agent_connection("a1"), agent_connection("a2")
    world.stewards["g1"].joined(first, {}, "1")
    world.stewards["g2"].joined(second, {}, "1")
    world.turns(GRACE + 5)
    assert (first.holds, second.holds) == ({"s": (1, 1)}, {})
    world.stewards["g1"].left(first)
    world.turns(GRACE - 5)
    assert second.holds == {}
    world.turns(10)
    assert second.holds == {"s": (2, 1)}


def test_agents_of_a_crashed_gateway_are_replaced() -> None:
    """The gateway is killed and writes nothing. Its agents count as disconnected, and another agent takes over."""
    world = World("g1", "g2")
    world.desire("s", "a1", "a2")
    first, second = agent_connection("a1"), agent_connection("a2")
    world.stewards["g1"].joined(first, {}, "1")
    world.stewards["g2"].joined(second, {}, "1")
    world.turns(5)
    world.turns(SILENT + GRACE - 5, without="g1")
    assert second.holds == {}
    world.turns(20, without="g1")
    assert second.holds == {"s": (2, 1)}
    world.turns(3)
    assert first.holds == {}, "the gateway was only slow: it withdraws the source from its agent"


def test_an_agent_that_leaves_while_kafka_is_unavailable_is_recorded_later() -> None:
    """It is recorded when Kafka is available again. Otherwise its sources would never be assigned to another agent."""
    world = World("g1", "g2")
    world.desire("s", "a1", "a2")
    first, second = agent_connection("a1"), agent_connection("a2")
    world.stewards["g1"].joined(first, {}, "1")
    world.stewards["g2"].joined(second, {}, "1")
    world.turns(3)
    world.topic.unavailable = True
    world.stewards["g1"].left(first)
    with pytest.raises(Retriable):
        world.turns(1)
    world.topic.unavailable = False
    world.turns(2)
    assert not world.topic.state.presences["a1"].connected
    world.turns(GRACE + 5)
    assert second.holds == {"s": (2, 1)}


def test_a_late_record_does_not_leave_an_agent_connected() -> None:
    """Kafka accepts the record of an agent's presence after the agent has disconnected."""
    world = World("g1")
    there = agent_connection("a1")
    world.stewards["g1"].joined(there, {}, "1")
    late = [record for record in world.topic.records if record[0].startswith(b'["agent"')][-1]
    world.stewards["g1"].left(there)
    world.turns(1)
    world.topic.write(late)
    world.turns(2)
    assert not world.topic.state.presences["a1"].connected


def test_no_gateway_counts_as_gone_while_kafka_is_unavailable() -> None:
    """No heartbeat can arrive then. So no lease moves, and no agent is recorded as disconnected."""
    world = World("g1", "g2")
    world.desire("s", "a1", "a2")
    first, second = agent_connection("a1"), agent_connection("a2")
    world.stewards["g1"].joined(first, {}, "1")
    world.stewards["g2"].joined(second, {}, "1")
    world.turns(10)
    written = [record for record in world.topic.records if not record[0].startswith(b'["gateway"')]
    world.topic.unavailable = True
    for _ in range(120):
        world.now += 1.0
        for coordinator in world.stewards.values():
            with suppress(Retriable):
                coordinator.turn()
    world.topic.unavailable = False
    world.turns(GRACE + SILENT)
    assert [record for record in world.topic.records if not record[0].startswith(b'["gateway"')] == written
    assert (first.holds, second.holds, first.ended, second.ended) == ({"s": (1, 1)}, {}, "", "")


def test_agents_of_a_crashed_gateway_are_shown_as_disconnected() -> None:
    """Another gateway records it. A gateway that was only slow corrects it."""
    world = World("g1", "g2")
    there = agent_connection("a1")
    world.stewards["g1"].joined(there, {}, "1")
    world.turns(SILENT + 5, without="g1")
    assert not world.topic.state.presences["a1"].connected
    world.turns(3)
    assert world.topic.state.presences["a1"].connected
    assert there.ended == ""


def test_drained_agents_and_gateways() -> None:
    """Sources of a drained agent move to another one, or to none. A drained gateway ends and refuses streams."""
    world = World("g1", "g2")
    world.desire("s", "a1", "a2")
    world.desire("only", "a1")
    first, second = agent_connection("a1"), agent_connection("a2")
    world.stewards["g1"].joined(first, {}, "1")
    world.stewards["g2"].joined(second, {}, "1")
    world.topic.write(drained_record("agents", "a1", True))
    world.turns(3)
    assert (first.holds, set(second.holds)) == ({}, {"s"})
    assert first.why["only"] == "the agent is drained"
    assert not world.topic.state.leases["only"].agent
    world.topic.write(drained_record("agents", "a1", False), drained_record("gateways", "g2", True))
    world.turns(2)
    assert set(first.holds) == {"only"}
    assert "drained" in second.ended
    late = agent_connection("a2")
    world.stewards["g2"].joined(late, {}, "1")
    assert "drained" in late.ended


def test_a_claim_that_loses_is_not_applied() -> None:
    """If another gateway's claim of the same epoch is earlier, this agent receives no assignment."""
    world = World("g1")
    world.desire("s", "a1", "a9")
    other = lease_record(Lease(source="s", epoch=1, agent="a9", gateway="g9#1", claim="theirs"))

    def first(record: StateRecord) -> None:
        if record[0].startswith(b'["lease"') and other not in world.topic.records:
            world.topic.records.append(other)

    there = agent_connection("a1")
    world.topic.before_write = first
    world.stewards["g1"].joined(there, {}, "1")
    assert (world.topic.state.leases["s"].agent, there.holds) == ("a9", {})
    assert not world.audit.lines, "it assigned nothing"


def test_another_tenants_agent_has_no_connection() -> None:
    """It is audited, and nothing about it is written to the topic."""
    world = World("g1")
    stranger = agent_connection("a1", "other")
    world.stewards["g1"].joined(stranger, {}, "1")
    assert "tenant other" in stranger.ended
    assert (world.topic.state.presences, [line["outcome"] for line in world.audit.lines]) == ({}, ["refused"])


def test_reports_and_catalogs_of_agents_are_stored() -> None:
    """Reports are stored for assigned sources at the current epoch. Others are refused and audited."""
    world = World("g1")
    world.desire("s", "a1")
    there, coordinator = agent_connection("a1"), world.stewards["g1"]
    coordinator.joined(there, {}, "1")
    failed = Report(source="s", epoch=1, version=1, progress=FAILED, reason="no", position=b'{"file": "b.1"}')
    coordinator.heard(there, StreamRequest(report=failed))
    kept = world.topic.state.reported["a1", "s"]
    assert (kept.status, kept.reason, kept.position) == ("failed", "no", {"file": "b.1"})
    coordinator.heard(there, StreamRequest(report=Report(source="s", epoch=0, version=9)))
    assert world.topic.state.reported["a1", "s"] == kept, "of another epoch"
    assert (there.holds, set(there.why)) == ({"s": (1, 1)}, {"s"}), "only the older lease has ended"
    coordinator.heard(there, StreamRequest(report=Report(source="crm", epoch=1)))
    coordinator.heard(there, StreamRequest(report=Report(source="s", epoch=1, position=b"{")))
    seen = DatabaseSeen(agent="a1", connection="db", database="d", tables=(TableSeen(name="t", rows=1, columns=()),))
    content = packed(seen)
    for at, last in ((slice(0, 9), False), (slice(9, None), True)):
        part = MapPart(connection="db", database="d", content=content[at], last=last)
        coordinator.heard(there, StreamRequest(map_part=part))
    assert world.topic.state.maps == {("a1", "db", "d"): seen}
    coordinator.heard(there, StreamRequest(map_part=MapPart(connection="db", database="d", content=b"x", last=True)))
    assert world.topic.state.maps == {("a1", "db", "d"): seen}
    coordinator.heard(there, StreamRequest(map_part=MapPart(connection="db", database="d", gone=True)))
    assert world.topic.state.maps == {}
    assert [line["what"] for line in world.audit.lines if line["outcome"] == "refused"] == ["report", "report", "map"]
    stranger = agent_connection("a1")
    coordinator.heard(stranger, StreamRequest(map_part=MapPart(connection="db", database="d", content=b"x", last=True)))
    assert there.ended == "", "messages of an unregistered stream are ignored"


def test_a_catalog_under_another_type_is_refused() -> None:
    """It is audited, and ends the stream of its agent."""
    world = World("g1")
    there, coordinator = agent_connection("a1"), world.stewards["g1"]
    coordinator.joined(there, {}, "1")
    for kind, key in (("sql", Control_MSSQLClient), ("maxscale", Control_MaxScale), ("kafka", Control_MSSQLClient)):
        content = packed(DatabaseSeen(agent="a1", connection="db", database=kind, tables=(), type=kind))
        part = MapPart(connection="db", database=kind, content=content, last=True)
        coordinator.heard(there, StreamRequest(type=key, map_part=part))
    assert [database for _, _, database in world.topic.state.maps] == ["sql", "maxscale"]
    why = "a catalog of type kafka in a message of type Control_MSSQLClient (17)"
    assert there.ended == why
    assert [line["why"] for line in world.audit.lines if line["outcome"] == "refused"] == [why]


def test_databases_that_an_agent_must_no_longer_report_are_removed() -> None:
    """If a database is removed from the policy, its earlier reports are removed from the catalog."""
    world = World("g1")
    for agent, database in (("a1", "kept"), ("a1", "gone"), ("a2", "gone")):
        world.topic.write(map_record(DatabaseSeen(agent=agent, connection="db", database=database, tables=())))
    world.stewards["g1"].joined(agent_connection("a1"), {}, "1", {("db", "kept")})
    assert set(world.topic.state.maps) == {("a1", "db", "kept"), ("a2", "db", "gone")}


def test_a_catalog_that_is_too_large_ends_the_stream() -> None:
    """An agent cannot exhaust the gateway's memory."""
    world = World("g1")
    there, coordinator = agent_connection("a1"), world.stewards["g1"]
    coordinator.joined(there, {}, "1")
    for number in range(40):  # also for many databases at once
        part = MapPart(connection="c", database=f"d{number % 5}", content=bytes(500_000))
        coordinator.heard(there, StreamRequest(map_part=part))
    assert there.ended == "its catalog is too large"
    agent_connections = [agent_connection(f"b{number}") for number in range(9)]
    for one in agent_connections:
        coordinator.joined(one, {}, "1")
        for _ in range(30):
            part = MapPart(connection="c", database="d", content=bytes(500_000))
            coordinator.heard(one, StreamRequest(map_part=part))
    assert [bool(one.ended) for one in agent_connections] == [False] * 4 + [True] * 5, "64 MiB for all agents together"


def test_while_kafka_is_unavailable_nothing_is_assigned_and_later_everything() -> None:
    """The next turn repeats what a turn could not do."""
    world = World("g1")
    world.desire("s", "a1")
    there, coordinator = agent_connection("a1"), world.stewards["g1"]
    world.topic.unavailable = True
    with pytest.raises(Retriable):
        coordinator.joined(there, {}, "1")
    assert there.holds == {}
    world.topic.unavailable = False
    world.turns(1)
    assert there.holds == {"s": (1, 1)}


@pytest.mark.parametrize("seed", range(60))
def test_random_histories_of_a_fleet(seed: int) -> None:
    """Agents connect, vanish and change gateways, and gateways pause. Then all is quiet.

    In the end each source is held by one allowed and connected agent, which received the newest epoch.
    """
    chance = random.Random(seed)
    world = World("g1", "g2", "g3")
    agent_connections: dict[str, tuple[str, NearbyConnection]] = {}
    versions, dead = itertools.count(1), list[tuple[str, NearbyConnection]]()
    for _ in range(40):
        what, agent = chance.random(), chance.choice(("a1", "a2", "a3"))
        if what < 0.4:
            gateway = chance.choice(("g1", "g2", "g3"))
            dead += [agent_connections[agent]] if agent in agent_connections else []
            agent_connections[agent] = gateway, agent_connection(agent)
            world.stewards[gateway].joined(agent_connections[agent][1], {}, "1")
        elif what < 0.55 and agent in agent_connections:
            gateway, gone = agent_connections.pop(agent)
            world.stewards[gateway].left(gone)
        elif what < 0.7:
            able = chance.sample(("a1", "a2", "a3"), chance.randint(1, 3))
            world.desire(chance.choice(("s1", "s2")), *able, version=next(versions))
        else:
            world.turns(chance.choice((1, 5, 40)), without=chance.choice(("", "g1", "g2")))
    for gateway, gone in dead:  # the gateway may notice late that the older stream is broken
        world.stewards[gateway].left(gone)
    world.turns(GRACE + SILENT + 20)
    state = world.topic.state
    there = {agent for agent, (_, one) in agent_connections.items() if not one.ended}
    assert there == set(agent_connections), "no newest stream was ended"
    for source, newest in state.newest().items():
        may = set(newest.spec.agents) & there if newest.spec else set[str]()
        lease = state.leases.get(source)
        if may:
            assert lease is not None
            assert lease.agent in may
            assert agent_connections[lease.agent][1].holds[source] == (lease.epoch, newest.version)
        for agent, (_, one) in agent_connections.items():
            assert (source in one.holds) == (bool(may) and lease is not None and lease.agent == agent)
