"""Sources as a gateway serves them: each session's log is Kafka's, as if the capture ran here.

What the fleet has configured needs a lease. What only the gateway's topology names does not: `tailorbird capture` goes
through a gateway as it goes to Kafka.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from cdc.model.errors import Retriable
from cdc.topology.topology import Source, Topology
from ingest.fleet.desired import SourceSpec, source_of
from ingest.fleet.identity import FleetIdentity
from ingest.fleet.permits import Permits
from ingest.gateway.gateway_interfaces import StateTopic
from ingest.gateway.grpc_session import Opened, SessionLog, SignalValues
from ingest.log.kafka_log import KafkaLog
from ingest.log.kafka_signals import KafkaSignals
from ingest.log.kafka_topics import make_topics, source_topics
from ingest.records.capture_interfaces import Recovered

# A gateway and a source's only agent may die together, and leave a transaction open: so long readers wait for it, and
# the recovery of other sources. Those of a session that lives are of some 20,000 records, and end within seconds.
TRANSACTION_TIMEOUT_MS = 60_000


@dataclass(frozen=True)
class KafkaSource:
    """Implements `grpc_session.Opened`."""

    topology: Topology
    source: Source

    @property
    def name(self) -> str:
        """The source's name."""
        return self.source.name

    @cached_property
    def permits(self) -> Permits:
        """What its sessions may write."""
        topics = source_topics(self.topology, self.source)
        return Permits(self.topology.name, self.source.name, frozenset(topics.changes), topics.open_ended)

    def log(self) -> SessionLog:
        """Its log, for a session; Retriable while Kafka is away."""
        return KafkaLog(self.topology, self.source, make_topics(self.topology, self.source), TRANSACTION_TIMEOUT_MS)

    def signals(self) -> SignalValues:
        """Signals to it."""
        return KafkaSignals(self.topology, self.source.name)


@dataclass(frozen=True, slots=True)
class HeldLease:
    """Whether an agent holds the lease of a source at an epoch, as the topic says at this moment."""

    topic: StateTopic
    source: str
    agent: str
    epoch: int

    def check(self) -> None:
        """Retriable where it does not: it is told what it may capture, and begins anew."""
        lease = self.topic.fresh().leases.get(self.source)
        if lease is None or not lease.admits(self.agent, self.epoch):
            held = f"agent {lease.agent} has it at epoch {lease.epoch}" if lease and lease.agent else "no agent has it"
            raise Retriable(f"agent {self.agent} has no lease of source {self.source} at epoch {self.epoch}: {held}")


class LeasedLog(KafkaLog):
    """A log that is recovered under a lease: read before predecessors are locked out, so that who has none locks out
    nobody, and again behind it, since a newer holder may have come meanwhile, whom this session then has locked out.
    """

    def __init__(self, topology: Topology, source: Source, held: HeldLease) -> None:
        held.check()
        self._held = held
        super().__init__(topology, source, make_topics(topology, source), TRANSACTION_TIMEOUT_MS)

    def recover(self) -> Recovered:
        """See `interfaces.ChangeLog`; Retriable without the lease."""
        self._held.check()
        found = super().recover()
        self._held.check()
        return found


@dataclass(frozen=True)
class LeasedSource:
    """A source that the fleet has configured; implements `grpc_session.Opened`. What its configuration says is read by
    its desk, in a thread: half a megabyte of it takes seconds, which the other streams do not have.
    """

    topology: Topology
    name: str
    spec: SourceSpec
    held: HeldLease

    @cached_property
    def served(self) -> KafkaSource:
        """As one of the topology's."""
        return KafkaSource(self.topology, source_of(self.spec, self.topology.name, self.name))

    @property
    def permits(self) -> Permits:
        """What its sessions may write."""
        return self.served.permits

    def log(self) -> SessionLog:
        """Its log, for a session; Retriable while Kafka is away, and without the lease."""
        return LeasedLog(self.topology, self.served.source, self.held)

    def signals(self) -> SignalValues:
        """Signals to it."""
        return KafkaSignals(self.topology, self.name)


@dataclass(frozen=True, slots=True)
class Unleased:
    """A source of the fleet's that an agent had, or would like to have; implements `grpc_session.Opened`.

    A lane of it fails by itself: the agent's other sources share its stream.
    """

    name: str
    agent: str

    @property
    def permits(self) -> Permits:
        """Nothing."""
        return Permits("", self.name, frozenset(), False)

    def log(self) -> SessionLog:
        """None."""
        raise Retriable(f"agent {self.agent} has no lease of source {self.name}")

    def signals(self) -> SignalValues:
        """None."""
        raise Retriable(f"agent {self.agent} has no lease of source {self.name}")


@dataclass(frozen=True, slots=True)
class KafkaFleet:
    """A part of `grpc_door.Fleet`: what agents of the gateway's tenant may capture, of a topology and of the fleet."""

    topology: Topology
    tenant: str
    topic: StateTopic | None = None

    def source(self, agent: FleetIdentity, name: str, epoch: int) -> Opened | None:
        """See `grpc_door.Fleet`."""
        if agent.tenant != self.tenant:
            return None
        if self.topic is not None and name in self.topic.state.desired:
            spec = self.topic.state.spec(name)
            if spec is None or agent.name not in spec.agents:
                return Unleased(name, agent.name)
            return LeasedSource(self.topology, name, spec, HeldLease(self.topic, name, agent.name, epoch))
        found = self.topology.sources.get(name)
        if found is not None and found.agent is not None:  # agents capture it, under a lease, once it is applied
            return Unleased(name, agent.name)
        return None if found is None else KafkaSource(self.topology, found)

    def serves(self, agent: FleetIdentity) -> bool:
        """See `grpc_door.Fleet`."""
        return agent.tenant == self.tenant

    def revoked(self, agent: FleetIdentity, serial: str) -> bool:
        """See `grpc_door.Fleet`."""
        return self.topic is not None and serial in self.topic.state.revoked

    def bearer(self, token: str) -> FleetIdentity | str:
        """Tokens are the steward's fleet's."""
        return "no such token"

    def joined(self, agent_connection: Any, request: Any, version: str) -> None:
        """Without a steward nobody is commanded."""

    def heard(self, agent_connection: Any, request: Any) -> None:
        """Nobody is there to hear it."""

    def left(self, agent_connection: Any) -> None:
        """Nobody had been told of it."""

    def refused(self, said: Mapping[str, Any], agent: FleetIdentity | None) -> None:
        """The gateway's log has it."""
