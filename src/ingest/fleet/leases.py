"""Leases: which agent may capture which source, by epoch.

A lease is a claim in the fleet's topic, which has one partition. Of all claims with the greatest epoch, the first one
in the topic wins. So any gateway may claim, no leader election is needed, and no two agents hold one epoch. This is
true for any number of concurrent claims, and after compaction of older epochs. Leases keep agents from taking sources
from one another. The safety of rows comes from Kafka's fencing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from ingest.fleet.desired import DesiredSource, SourceSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """Lease of one source: `agent`, connected to `gateway`, may capture it at `epoch`. An empty agent: no agent may.

    `claim` makes the record key unique. If two claims had one key, compaction would remove the first one, which wins.
    """

    source: str
    epoch: int
    agent: str
    gateway: str
    claim: str = ""

    def admits(self, agent: str, epoch: int) -> bool:
        """True if an agent may capture with an epoch. An older epoch of the same agent is refused."""
        return bool(self.agent) and (agent, epoch) == (self.agent, self.epoch)


@dataclass(frozen=True, slots=True, kw_only=True)
class Presence:
    """The gateway of an agent's latest stream. `labels` and `version` are reported by the agent."""

    agent: str
    gateway: str
    connected: bool
    version: str = ""
    labels: Mapping[str, str] | None = None
    at_ms: int = 0


def winning_claim(held: Lease | None, claim: Lease) -> Lease:
    """Return the lease in force after a further claim."""
    return claim if held is None or claim.epoch > held.epoch else held


def next_epoch(held: Lease | None) -> int:
    """Return the epoch for a further claim."""
    return 1 if held is None else held.epoch + 1


def choose_agent(
    spec: SourceSpec | None,
    held: Lease | None,
    present: Collection[str],
    drained: Collection[str],
    unavailable: Collection[str],
) -> str | None:
    """Choose the agent for a source: its holder while allowed, otherwise the first listed agent that is connected.

    Returns "" if no agent may capture it, and None to leave the lease unchanged. `unavailable` are agents that have
    been disconnected for so long that another one may take over.
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
    """Yield the claims that a gateway makes for its agents; none for leases already in force.

    `drained` are agents that must not capture, `gone` are gateways that send no heartbeat. A gateway claims for agents
    whose latest stream it has. It withdraws leases that it gave, or that a gone gateway gave.
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
