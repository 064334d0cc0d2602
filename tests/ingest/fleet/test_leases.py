"""Leases over random histories: concurrent claims with outdated views, and reads after compaction."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingest.fleet.desired import DesiredSource, SourceSpec
from ingest.fleet.leases import Lease, Presence, choose_agent, claims, next_epoch
from ingest.fleet.state import (
    FleetState,
    StateRecord,
    desired_record,
    folded,
    lease_over,
    lease_record,
    presence_record,
)

AGENTS, GATEWAYS, SOURCES = ("a1", "a2", "a3"), ("g1", "g2", "g3"), ("s1", "s2")


def compacted(records: list[StateRecord], keep: int) -> list[StateRecord]:
    """Compact the first `keep` records as Kafka does: the newest of each key, in order; then all others."""
    last = {key: place for place, (key, _) in enumerate(records[:keep])}
    return [one for place, one in enumerate(records[:keep]) if last[one[0]] == place] + records[keep:]


class Gateway:
    """Claims for its connected agents with a view that may be outdated."""

    def __init__(self, name: str) -> None:
        self.name, self.state, self.read = name, FleetState(), 0
        self.here: set[str] = set()

    def catch_up(self, log: list[StateRecord], records: int) -> None:
        fresh = log[self.read : self.read + records]
        self.state, self.read = folded(self.state, fresh), self.read + len(fresh)

    def claimed(self, gone: set[str], unavailable: set[str]) -> list[Lease]:
        state = self.state
        drained = {name for (role, name), said in state.drained.items() if said and role == "agents"}
        return list(
            claims(
                self.name, state.newest(), state.leases, state.presences, drained=drained, gone=gone,
                unavailable=unavailable,
            )
        )  # fmt: skip


def history(chance: random.Random, steps: int) -> tuple[list[StateRecord], list[Gateway]]:
    """A log of gateways that read it late, considered each other gone, and removed old claims."""
    log: list[StateRecord] = []
    gateways = [Gateway(name) for name in GATEWAYS]
    versions = dict.fromkeys(SOURCES, 0)
    for _ in range(steps):
        gateway = chance.choice(gateways)
        what = chance.random()
        if what < 0.2:
            agent = chance.choice(AGENTS)
            connected = chance.random() < 0.7
            log.append(presence_record(Presence(agent=agent, gateway=gateway.name, connected=connected)))
        elif what < 0.35:
            source = chance.choice(SOURCES)
            versions[source] += 1
            agents = tuple(chance.sample(AGENTS, chance.randint(1, 3)))
            spec = SourceSpec(agents=agents, connection="c", running=chance.random() < 0.8)
            desired = DesiredSource(
                source=source, version=versions[source], spec=spec if chance.random() < 0.9 else None
            )
            log.append(desired_record(desired, gateway.name))
        elif what < 0.7:
            gateway.catch_up(log, chance.randint(1, 6))
        else:
            gone = {one for one in GATEWAYS if one != gateway.name and chance.random() < 0.2}
            unavailable = {one for one in AGENTS if chance.random() < 0.3}
            for reported in gateway.claimed(gone, unavailable):
                lease = replace(reported, claim=str(len(log)))
                log.append(lease_record(lease))
                held = gateway.state.leases.get(lease.source)
                if held is not None and chance.random() < 0.5:
                    log.append(lease_over(held))
    return log, gateways


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 2**32), st.integers(10, 120))
def test_two_agents_never_hold_one_epoch(seed: int, steps: int) -> None:
    """For every prefix of the topic, and after every compaction, each epoch of a source has one holder."""
    log, _ = history(random.Random(seed), steps)
    holders: dict[tuple[str, int], tuple[str, str]] = {}
    state = FleetState()
    for record in log:
        state = folded(state, [record])
        for lease in state.leases.values():
            reported = holders.setdefault((lease.source, lease.epoch), (lease.agent, lease.gateway))
            assert reported == (lease.agent, lease.gateway)
    for keep in {0, len(log) // 2, len(log)}:
        left = folded(FleetState(), compacted(log, keep))
        assert left.leases == state.leases, "readers after compaction see the same"


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2**32), st.integers(10, 120))
def test_epochs_only_grow_and_an_older_one_is_refused(seed: int, steps: int) -> None:
    """Also for the holder of the newest epoch, and for a late claim."""
    log, _ = history(random.Random(seed), steps)
    state = FleetState()
    for record in log:
        before = state.leases
        state = folded(state, [record])
        for source, lease in before.items():
            now = state.leases[source]
            assert now.epoch >= lease.epoch
            if now.epoch > lease.epoch:
                assert not any(now.admits(agent, lease.epoch) for agent in AGENTS)
                late = Lease(source=source, epoch=lease.epoch, agent="a1", gateway="g3")
                assert folded(state, [lease_record(late)]).leases == state.leases
    assert all(sum(lease.admits(a, lease.epoch) for a in AGENTS) <= 1 for lease in state.leases.values())


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32), st.integers(10, 80))
def test_gateways_that_read_everything_agree_and_stop_to_claim(seed: int, steps: int) -> None:
    """In the end each running source has an allowed and connected agent, and no gateway claims again."""
    log, gateways = history(random.Random(seed), steps)
    for _ in range(6):
        for gateway in gateways:
            gateway.catch_up(log, len(log))
            for reported in gateway.claimed(set(), set()):
                log.append(lease_record(replace(reported, claim=str(len(log)))))
    state = folded(FleetState(), log)
    for gateway in gateways:
        gateway.catch_up(log, len(log))
        assert gateway.claimed(set(), set()) == []
    for source, newest in state.newest().items():
        lease = state.leases.get(source)
        present = {one.agent for one in state.presences.values() if one.connected}
        able = set(newest.spec.agents) if newest.spec and newest.spec.running else set()
        if lease is not None and lease.agent and lease.agent in present:
            assert lease.agent in able
            assert lease.gateway == state.presences[lease.agent].gateway
        elif able & present:
            assert lease is not None
            assert lease.agent in able, "kept for an agent that may reconnect"


def test_an_agent_that_changes_gateways_keeps_its_source() -> None:
    """It gets a new epoch, so that its older stream has none."""
    spec = SourceSpec(agents=("a1",), connection="c")
    desired = {"s1": DesiredSource(source="s1", version=1, spec=spec)}
    held = {"s1": Lease(source="s1", epoch=3, agent="a1", gateway="g1")}
    there = {"a1": Presence(agent="a1", gateway="g2", connected=True)}
    none = {"drained": (), "gone": (), "unavailable": ()}
    assert list(claims("g1", desired, held, there, **none)) == []
    assert list(claims("g2", desired, held, there, **none)) == [
        Lease(source="s1", epoch=4, agent="a1", gateway="g2")
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("held", "present", "drained", "unavailable", "who"),
    [
        ("a2", {"a1", "a2"}, (), (), "a2"),
        ("a2", {"a1"}, (), (), "a2"),
        ("a2", {"a1"}, (), {"a2"}, "a1"),
        ("a2", {"a1", "a2"}, ("a2",), (), "a1"),
        ("a2", set(), ("a2",), (), ""),
        ("a2", set(), (), {"a2"}, None),
        ("a3", {"a3"}, (), (), ""),
        (None, {"a2"}, (), (), "a2"),
        (None, set(), (), (), None),
    ],
)
def test_the_choice_of_the_agent_for_a_source(
    held: str | None, present: set[str], drained: tuple[str, ...], unavailable: set[str], who: str | None
) -> None:
    """The holder while allowed, another one after a long absence, none if the only agent is drained."""
    spec = SourceSpec(agents=("a1", "a2"), connection="c")
    lease = Lease(source="s", epoch=1, agent=held, gateway="g1") if held else None
    assert choose_agent(spec, lease, present, drained, unavailable) == who
    assert next_epoch(lease) == (2 if held else 1)
