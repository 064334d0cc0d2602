"""A topology's sources as a gateway serves them: each session's log is Kafka's, as if the capture ran here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cdc.topology.topology import Source, Topology
from ingest.fleet.identity import FleetIdentity
from ingest.fleet.permits import Permits
from ingest.gateway.grpc_desk import Opened, SignalValues
from ingest.log.kafka_log import KafkaLog
from ingest.log.kafka_signals import KafkaSignals
from ingest.log.kafka_topics import make_topics, source_topics
from ingest.records.seams import OpenLog


@dataclass(frozen=True, slots=True)
class KafkaSource:
    """Implements `desk.Opened`."""

    topology: Topology
    source: Source

    @property
    def name(self) -> str:
        """The source's name."""
        return self.source.name

    @property
    def permits(self) -> Permits:
        """What its sessions may write."""
        topics = source_topics(self.topology, self.source)
        return Permits(self.topology.name, self.source.name, frozenset(topics.changes), topics.open_ended)

    def log(self) -> OpenLog:
        """Its log, for a session; Retriable while Kafka is away."""
        return KafkaLog(self.topology, self.source, make_topics(self.topology, self.source))

    def signals(self) -> SignalValues:
        """Signals to it."""
        return KafkaSignals(self.topology, self.source.name)


@dataclass(frozen=True, slots=True)
class KafkaFleet:
    """Implements `grpc_door.Fleet`: every agent of the gateway's tenant may capture the topology's sources."""

    topology: Topology
    tenant: str

    def source(self, agent: FleetIdentity, name: str) -> Opened | None:
        """See `grpc_door.Fleet`."""
        found: Any = self.topology.sources.get(name)
        return None if found is None or agent.tenant != self.tenant else KafkaSource(self.topology, found)
