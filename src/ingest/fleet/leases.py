"""Which agent may capture which source, by epochs; pure.

A lease is a claim in the fleet's topic, which has one partition: of all claims of the greatest epoch, the one that came
first counts, and nothing else does. So whoever may write may claim, nobody needs to be elected, and no two agents are
ever entitled at one epoch, however many gateways claim at once and whatever compaction has taken of older epochs.
Entitlement keeps agents from taking sources from one another; that rows are safe is made by Kafka's fencing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from ingest.fleet.desired import Desired, SourceSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """Of one source: `agent`, which dialled `gateway`, may capture it at `epoch`; an empty agent: nobody may.

    `claim` is unlike that of any other record: were two written under one key, compaction would take the first, which
    counts, and leave the second.
    """

    source: str
    epoch: int
    agent: str
    gateway: str
    claim: str = ""

    def admits(self, agent: str, epoch: int) -> bool:
        """Whether an agent that was told an epoch may capture; not one of an older epoch, were it the same agent."""
        return bool(self.agent) and (agent, epoch) == (self.agent, self.epoch)


@dataclass(frozen=True, slots=True, kw_only=True)
class Presence:
    """Where an agent's stream was last: the newest one counts. `labels` and `version` are its own words."""

    agent: str
    gateway: str
    connected: bool
    version: str = ""
    labels: Mapping[str, str] | None = None
    at_ms: int = 0


def counts(held: Lease | None, reported: Lease) -> Lease:
    """What holds behind a further claim."""
    return reported if held is None or reported.epoch > held.epoch else held


def next_epoch(held: Lease | None) -> int:
    """The epoch that a further claim has to have."""
    return 1 if held is None else held.epoch + 1


def chosen(
    spec: SourceSpec | None,
    held: Lease | None,
    present: Collection[str],
    drained: Collection[str],
    unavailable: Collection[str],
) -> str | None:
    """Who ought to have a source: its holder while it may, else the first agent named that is there; None: leave it.

    `unavailable` are agents that were not seen for so long that another one may take over; empty text: nobody may have
    it.
    """
    if spec is None or not spec.running:
        return ""
    able = [agent for agent in spec.agents if agent not in drained]
    if held is not None and held.agent in able and (held.agent in present or held.agent not in unavailable):
        return held.agent
    there = next((agent for agent in able if agent in present), None)
    if there is None:
        return "" if held is not None and held.agent and held.agent not in able else None
    return there


def claims(
    gateway: str,
    desired: Mapping[str, Desired],
    leases: Mapping[str, Lease],
    presences: Mapping[str, Presence],
    *,
    drained: Collection[str],
    gone: Collection[str],
    unavailable: Collection[str],
) -> Iterator[Lease]:
    """What a gateway claims for its agents; it repeats nothing that holds already.

    `drained` are agents that shall have nothing, `gone` gateways that are silent. A gateway claims for agents whose
    newest stream it has, and takes from agents what it gave them, or what a gateway gave that is gone.
    """
    present = {one.agent for one in presences.values() if one.connected and one.gateway not in gone}
    here = {agent for agent in present if presences[agent].gateway == gateway}
    for name, newest in desired.items():
        held = leases.get(name)
        agent = chosen(newest.spec, held, present, drained, unavailable)
        if agent is None:
            continue
        if agent == "":
            ours = held is not None and (held.gateway == gateway or held.gateway in gone or held.agent in here)
            if held is not None and held.agent and ours:
                yield Lease(source=name, epoch=next_epoch(held), agent="", gateway=gateway)
        elif agent in here and (held is None or (held.agent, held.gateway) != (agent, gateway)):
            yield Lease(source=name, epoch=next_epoch(held), agent=agent, gateway=gateway)
