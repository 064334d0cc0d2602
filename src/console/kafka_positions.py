"""Reads how far each source's capture has come, from the positions topic."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kafka import KafkaConsumer, TopicPartition
from kafka.errors import KafkaError

from cdc.errors import Retriable
from cdc.naming import positions_topic, transactional_id
from cdc.topology import Topology


@dataclass(frozen=True, slots=True, kw_only=True)
class CapturedPosition:
    """The newest committed position of a source: all GTIDs read, and the sequence of its last published change.

    `snapshots` is the progress of those under way, by `database.table`: rows, total (an estimate), began_ms.
    """

    gtid_set: str
    sequence: int
    snapshot: str
    snapshots: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


def captured_positions(topology: Topology) -> dict[str, CapturedPosition]:
    """Newest position by source; a source that has none yet is absent. Reads the compacted topic from its start."""
    topic = positions_topic(topology.name)
    by_key = {transactional_id(topology.name, source): source for source in topology.sources}
    found: dict[str, CapturedPosition] = {}
    try:
        consumer = KafkaConsumer(
            bootstrap_servers=topology.log.bootstrap_servers,
            isolation_level="read_committed",
            enable_auto_commit=False,
            consumer_timeout_ms=1000,
        )
    except KafkaError as error:
        raise Retriable(f"Kafka at {topology.log.bootstrap_servers}: {error}", "tailorbird stack status") from error
    try:
        partitions = [TopicPartition(topic, p) for p in consumer.partitions_for_topic(topic) or ()]
        if not partitions:
            return found
        consumer.assign(partitions)
        ends = consumer.end_offsets(partitions)
        # Each source's newest record stands at most a few records before its partition's end; markers count as offsets.
        for partition in partitions:
            consumer.seek(partition, max(0, ends[partition] - 50))
        while any(consumer.position(partition) < ends[partition] for partition in partitions):
            for records in consumer.poll(timeout_ms=500).values():
                for record in records:
                    if record.key is None or record.value is None:
                        continue
                    source = by_key.get(record.key.decode())
                    if source is None:
                        continue
                    value = json.loads(record.value)
                    found[source] = CapturedPosition(
                        gtid_set=value["position"]["gtid_set"],
                        sequence=value["position"]["sequence"],
                        snapshot=value["snapshot"],
                        snapshots=value.get("state", {}).get("snapshots", {}),
                    )
        return found
    finally:
        consumer.close()
