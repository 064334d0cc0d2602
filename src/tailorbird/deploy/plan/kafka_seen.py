"""Read from Kafka the topics of a topology, their numbers of records, and the captured schemas."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaException, TopicPartition

from cdc.model.errors import Retriable
from cdc.model.naming import fleet_topic, schemas_topic
from cdc.model.schema import TableId, TableSchema
from cdc.topology.topology import Topology
from ingest.gateway.kafka_state import KafkaState
from joins.select.parser import tables_of
from joins.stores.kafka_schemas import read_schemas

_TIMEOUT = 10.0
_WAIT_LIMIT = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenTopics:
    """The number of partitions, and of offsets in use, by topic. A compacted topic has fewer records than offsets."""

    partitions: Mapping[str, int]
    records: Mapping[str, int]


def seen_topics(topology: Topology) -> SeenTopics:
    """Return the topics whose names begin with the topology's name. Raises Retriable while Kafka is unavailable."""
    try:
        consumer = Consumer(topology.log.brokers.reader("tailorbird-plan"))
        try:
            known = consumer.list_topics(timeout=_TIMEOUT).topics
            own = {name: sorted(one.partitions) for name, one in known.items() if name.startswith(f"{topology.name}.")}
            records = {
                name: sum(_records(consumer, name, one) for one in partitions) for name, partitions in own.items()
            }
        finally:
            consumer.close()
    except KafkaException as error:
        what = f"Kafka at {topology.log.brokers}: {error.args[0].str()}"
        raise Retriable(what, "is it running? `tailorbird stack status`") from error
    return SeenTopics(partitions={name: len(one) for name, one in own.items()}, records=records)


def _records(consumer: Consumer, topic: str, partition: int) -> int:
    low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=_TIMEOUT)
    return int(high - low)


def fleet_sources(topology: Topology, topics: SeenTopics) -> frozenset[str]:
    """Return the sources that are configured for agents of the fleet. Raises Retriable while Kafka is unavailable."""
    if fleet_topic(topology.name) not in topics.partitions:
        return frozenset()
    fleet = KafkaState(topology.log, topology.name)
    try:
        newest = fleet.state.newest()
    finally:
        fleet.close()
    return frozenset(name for name, version in newest.items() if version.spec is not None)


def reported_schemas(topology: Topology, topics: SeenTopics) -> dict[TableId, TableSchema]:
    """Return the published schemas of the tables that queries read.

    Waits at most five seconds; tables without a published schema are then missing from the result."""
    read = frozenset(one for table in topology.tables.values() for one in tables_of(topology, table))
    wanted = frozenset(one for one in read if topology.routing.topic_of(one) in topics.partitions)
    if not wanted or schemas_topic(topology.name) not in topics.partitions:
        return {}
    deadline = time.monotonic() + _WAIT_LIMIT
    return read_schemas(
        topology.log.brokers, topology.name, wanted, lambda _: None, lambda: time.monotonic() > deadline
    )
