"""Read the formats of the records in a topology's topics. Read-only."""

from __future__ import annotations

from collections.abc import Iterator

import orjson

from cdc.formats.position_records import source_key
from cdc.model.naming import checks_topic, history_topic, positions_topic, versions_topic
from cdc.process.kafka_reader import KafkaReader
from cdc.topology.topology import Topology
from tailorbird.deploy.upgrade.formats import StoredFormat


def formats_in_kafka(topology: Topology) -> Iterator[StoredFormat]:
    """Yield the formats of positions by source, of the schema history, of table versions and of check results.

    Topics that do not exist have none. Raises Retriable while Kafka is unavailable."""
    topics = {
        "positions": positions_topic(topology.name),
        "schema history": history_topic(topology.name),
        "table versions": versions_topic(topology.name),
        "check results": checks_topic(topology.name),
    }
    with KafkaReader(topology.log.brokers, "tailorbird-upgrade", "stored formats cannot be read") as reader:
        for name, topic in topics.items():
            found = set[tuple[str, int]]()
            for at in reader.partitions(topic):
                low, end = reader.bounds(at)
                for message in reader.records({at: low}, {at: end}):
                    if (number := format_of(message.value())) is not None:
                        key = source_key(message.key()).decode(errors="replace")
                        found.add((key.removeprefix(f"{topology.name}.") if name == "positions" else topic, number))
            yield from (StoredFormat(name=name, place=place, format=number) for place, number in sorted(found))


def format_of(value: bytes | None) -> int | None:
    """Return the format of a JSON record: 1 without a number. None for a tombstone and for a foreign record."""
    try:
        content = orjson.loads(value or b"null")
    except orjson.JSONDecodeError:
        return None
    number = content.get("format", 1) if isinstance(content, dict) else None
    return number if type(number) is int else None
