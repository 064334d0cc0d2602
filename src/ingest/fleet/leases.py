"""Leases: which agent may capture which source, by epoch.

A lease is a claim in the fleet's topic, which has one partition. Of all claims with the greatest epoch, the first one
in the topic wins. So any gateway may claim, no leader election is needed, and no two agents hold one epoch. This holds
for any number of concurrent claims, and after compaction. Leases only prevent two agents from capturing one source in
turns; exactly-once delivery comes from Kafka's fencing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from ingest.fleet.desired import DesiredSource, SourceSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """Right of `agent`, connected to `gateway`, to capture a source at `epoch`. If `agent` is empty, no agent may.

    `claim` is a unique text in the record's key: with equal keys, compaction would remove the first claim, which wins.
    """

    source: str
    epoch: int
    agent: str
    gateway: str
    claim: str = ""

    def admits(self, agent: str, epoch: int) -> bool:
        """Return whether an agent may capture at an epoch. An older epoch of the same agent is refused."""
        return bool(self.agent) and (agent, epoch) == (self.agent, self.epoch)


@dataclass(frozen=True, slots=True, kw_only=True)
class Presence:
    """The gateway to which an agent opened its latest stream. The agent reports `labels` and `version`."""

    agent: str
    gateway: str
    connected: bool
    version: str = ""
    labels: Mapping[str, str] | None = None
    at_ms: int = 0


def winning_claim(held: Lease | None, claim: Lease) -> Lease:
    """Return which of two claims is in force: the one with the greater epoch, else the earlier one (`held`)."""
    return claim if held is None or claim.epoch > held.epoch else held


def next_epoch(held: Lease | None) -> int:
    """Return the epoch for the next claim."""
    return 1 if held is None else held.epoch + 1


def choose_agent(
    spec: SourceSpec | None,
    held: Lease | None,
    present: Collection[str],
    drained: Collection[str],
    unavailable: Collection[str],
) -> str | None:
    """Choose the agent of a source: its present one if still allowed, else the first listed agent that is connected.

    Returns "" if no agent may capture it, and None if the lease should stay as it is. `present` are connected agents,
    `drained` those that must not capture. `unavailable` are agents that have been disconnected so long that another one
    may take over.
    """
    if spec is None or not spec.running:
        return ""
    able = [agent for agent in spec.agents if agent not in drained]
    if held is not None and held.agent in able and (held.agent in present or held.agent not in unavailable):
        return held.agent
    connected = next((agent for agent in able if agent in present), None)
    if connected is None:
        return "" if held is not None and held.agent and held.agent not in able else None
    return connected


def claims(
    gateway: str,
    desired: Mapping[str, DesiredSource],
    leases: Mapping[str, Lease],
    presences: Mapping[str, Presence],
    *,
    drained: Collection[str],
    gone: Collection[str],
    unavailable: Collection[str],
) -> Iterator[Lease]:
    """Yield the claims that a gateway should make now, for its own agents; none where the lease in force is right.

    `drained` are agents that must not capture, `gone` are gateways that send no heartbeat. A gateway claims for agents
    whose latest stream it has. It withdraws leases that it, or a gone gateway, has given.
    """
    present = {one.agent for one in presences.values() if one.connected and one.gateway not in gone}
    here = {agent for agent in present if presences[agent].gateway == gateway}
    for name, newest in desired.items():
        held = leases.get(name)
        agent = choose_agent(newest.spec, held, present, drained, unavailable)
        if agent is None:
            continue
        if agent == "":
            ours = held is not None and (held.gateway == gateway or held.gateway in gone or held.agent in here)
            if held is not None and held.agent and ours:
                yield Lease(source=name, epoch=next_epoch(held), agent="", gateway=gateway)
        elif agent in here and (held is None or (held.agent, held.gateway) != (agent, gateway)):
            yield Lease(source=name, epoch=next_epoch(held), agent=agent, gateway=gateway)
