"""Sources that a gateway serves. Each session writes to Kafka as if capture ran within the gateway.

Sources that were added to the fleet need a lease. Sources of the gateway's own topology do not: they serve `tailorbird
capture --gateway`.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from cdc.model.errors import Retriable
from cdc.otel.http_spans import tracer_of
from cdc.otel.stages import GATEWAY
from cdc.topology.topology import Source, Topology
from ingest.fleet.desired import SourceSpec, source_of
from ingest.fleet.identity import FleetIdentity
from ingest.fleet.permits import Permits
from ingest.gateway.gateway_interfaces import StateTopic
from ingest.gateway.grpc_session import ServedSource, SignalValues
from ingest.log.kafka_log import KafkaLog
from ingest.log.kafka_signals import KafkaSignals
from ingest.log.kafka_topics import make_topics, source_topics
from ingest.log.traced_log import TracedSessionLog
from ingest.records.capture_interfaces import Recovered, SessionLog

# If a gateway and a source's only agent crash together, their transaction stays open. Consumers and the recovery of
# other sources wait for it at most this long. Transactions of a running session have about 20,000 records, and end
# within seconds.
TRANSACTION_TIMEOUT_MS = 60_000


def _traced(topology: Topology, log: SessionLog, source: str) -> SessionLog:
    tracer = tracer_of(topology.name, "gateway")
    return log if tracer is None else TracedSessionLog(log, source, tracer, time.time_ns, GATEWAY)


@dataclass(frozen=True)
class KafkaSource:
    """A source of the gateway's topology; implements `grpc_session.ServedSource`."""

    topology: Topology
    source: Source

    @property
    def name(self) -> str:
        """Return the source's name."""
        return self.source.name

    @cached_property
    def permits(self) -> Permits:
        """Return the topics and keys that its sessions may write."""
        topics = source_topics(self.topology, self.source)
        return Permits(self.topology.name, self.source.name, frozenset(topics.changes), topics.open_ended)

    def log(self) -> SessionLog:
        """Open the change log for a session. Raises Retriable while Kafka is unavailable."""
        topics = make_topics(self.topology, self.source)
        return _traced(self.topology, KafkaLog(self.topology, self.source, topics, TRANSACTION_TIMEOUT_MS), self.name)

    def signals(self) -> SignalValues:
        """Open the signals to the source."""
        return KafkaSignals(self.topology, self.source.name)


@dataclass(frozen=True, slots=True)
class HeldLease:
    """An agent's claim to have a lease of a source at an epoch, to be checked against the fleet's topic."""

    topic: StateTopic
    source: str
    agent: str
    epoch: int

    def check(self) -> None:
        """Raise Retriable if the agent does not have the lease now. The agent then starts again with its current
        assignments."""
        lease = self.topic.fresh().leases.get(self.source)
        if lease is None or not lease.admits(self.agent, self.epoch):
            held = f"agent {lease.agent} has it at epoch {lease.epoch}" if lease and lease.agent else "no agent has it"
            raise Retriable(f"agent {self.agent} has no lease of source {self.source} at epoch {self.epoch}: {held}")


class LeasedLog(KafkaLog):
    """A change log that checks the lease before and after it fences earlier writers.

    The first check keeps a session without a lease from fencing others. The second one notices that this session has
    fenced a newer holder of the lease.
    """

    def __init__(self, topology: Topology, source: Source, held: HeldLease) -> None:
        held.check()
        self._held = held
        super().__init__(topology, source, make_topics(topology, source), TRANSACTION_TIMEOUT_MS)

    def recover(self) -> Recovered:
        """Implements `ChangeLog.recover`. Raises Retriable without the lease."""
        self._held.check()
        found = super().recover()
        self._held.check()
        return found


@dataclass(frozen=True)
class LeasedSource:
    """A source that was added to the fleet; implements `grpc_session.ServedSource`.

    The session handler's thread parses the configuration, not the event loop: 512 KiB take seconds.
    """

    topology: Topology
    name: str
    spec: SourceSpec
    held: HeldLease

    @cached_property
    def served(self) -> KafkaSource:
        """Return the source as if it were in the gateway's topology."""
        return KafkaSource(self.topology, source_of(self.spec, self.topology.name, self.name))

    @property
    def permits(self) -> Permits:
        """Return the topics and keys that its sessions may write."""
        return self.served.permits

    def log(self) -> SessionLog:
        """Open the change log for a session. Raises Retriable if Kafka is unavailable, or the agent has no lease."""
        return _traced(self.topology, LeasedLog(self.topology, self.served.source, self.held), self.name)

    def signals(self) -> SignalValues:
        """Open the signals to the source."""
        return KafkaSignals(self.topology, self.name)


@dataclass(frozen=True, slots=True)
class UnleasedSource:
    """A source of the fleet for which the agent has no lease; implements `grpc_session.ServedSource`.

    Only its session channel fails. The stream remains open, because other sources of the agent share it.
    """

    name: str
    agent: str

    @property
    def permits(self) -> Permits:
        """Return permissions that allow nothing."""
        return Permits("", self.name, frozenset(), False)

    def log(self) -> SessionLog:
        """Raise Retriable, because the agent has no lease."""
        raise Retriable(f"agent {self.agent} has no lease of source {self.name}")

    def signals(self) -> SignalValues:
        """Raise Retriable, because the agent has no lease."""
        raise Retriable(f"agent {self.agent} has no lease of source {self.name}")


@dataclass(frozen=True, slots=True)
class KafkaFleet:
    """Sources that the agents of a tenant may capture; implements `grpc_streams.Fleet`.

    They are in the topology, or were added to the fleet (`topic`).
    """

    topology: Topology
    tenant: str
    topic: StateTopic | None = None

    def source(self, agent: FleetIdentity, name: str, epoch: int) -> ServedSource | None:
        """Implements `Fleet.source`."""
        if agent.tenant != self.tenant:
            return None
        if self.topic is not None and name in self.topic.state.desired:
            spec = self.topic.state.spec(name)
            if spec is None or agent.name not in spec.agents:
                return UnleasedSource(name, agent.name)
            return LeasedSource(self.topology, name, spec, HeldLease(self.topic, name, agent.name, epoch))
        found = self.topology.sources.get(name)
        # the topology assigns it to agents: they capture it under a lease, after `apply`
        if found is not None and found.agent is not None:
            return UnleasedSource(name, agent.name)
        return None if found is None else KafkaSource(self.topology, found)

    def serves(self, agent: FleetIdentity) -> bool:
        """Return whether the gateway serves the agent's tenant. Implements `Fleet`."""
        return agent.tenant == self.tenant

    def revoked(self, agent: FleetIdentity, serial: str) -> bool:
        """Return whether an agent's certificate was revoked. Implements `Fleet`."""
        return self.topic is not None and serial in self.topic.state.revoked

    def bearer(self, token: str) -> FleetIdentity | str:
        """Refuse every token: only `GatewayRuntime` knows tokens."""
        return "no such token"

    def joined(self, agent_connection: Any, request: Any, version: str) -> None:
        """Do nothing: there is no coordinator."""

    def heard(self, agent_connection: Any, request: Any) -> None:
        """Do nothing: there is no coordinator."""

    def left(self, agent_connection: Any) -> None:
        """Do nothing: there is no coordinator."""

    def refused(self, entry: Mapping[str, Any], agent: FleetIdentity | None) -> None:
        """Do nothing: the gateway's log already contains the refusal."""
