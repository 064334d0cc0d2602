"""Access a topology's fleet directly in Kafka instead of through a gateway: for the first token, and `tailorbird
apply`."""

from __future__ import annotations

import getpass
from collections.abc import Iterator
from contextlib import contextmanager

from cdc.topology.topology import Topology
from ingest.gateway.commands import FleetCommands, FleetOperator
from ingest.gateway.kafka_audit import KafkaAudit
from ingest.gateway.kafka_state import KafkaState
from ingest.gateway.run_gateway import commands_of
from tailorbird.web.fleet.file_fleet import declared_sources
from tailorbird.web.fleet.wanted import WantedSource, wanted


@contextmanager
def fleet_topics(topology: Topology) -> Iterator[tuple[KafkaState, KafkaAudit]]:
    """Context manager: yield the fleet's state and the audit log of a topology."""
    topic, audit = KafkaState(topology.log, topology.name), KafkaAudit(topology.log, topology.name)
    try:
        yield topic, audit
    finally:
        topic.close()
        audit.close()


@contextmanager
def by_kafka(topology: Topology) -> Iterator[tuple[KafkaState, FleetCommands, FleetOperator]]:
    """Context manager: yield the fleet's state and commands, with the current user as operator for the audit log.

    No token is needed, because a user who may write to Kafka can write anything."""
    with fleet_topics(topology) as (topic, audit):
        yield topic, commands_of(topology, topic, audit), FleetOperator(f"{getpass.getuser()}, by Kafka")


def written(topology: Topology, *, dry_run: bool) -> Iterator[WantedSource]:
    """Write the sources that differ between the file and the fleet. Yield each with what was done.

    Raises the errors of `wanted`, and Retriable while Kafka is unavailable."""
    with by_kafka(topology) as (topic, commands, who):
        for one in list(wanted(topology, declared_sources(topology), topic.fresh())):
            if one.done == "made" and not dry_run:
                commands.add(who, one.source, one.reported)
            elif one.done == "changed" and not dry_run:
                commands.configure(who, one.source, one.reported)
            yield one
