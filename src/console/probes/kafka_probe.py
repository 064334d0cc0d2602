"""Whether the broker of the stack serves every partition that it has."""

from __future__ import annotations

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from cdc.words.brokers import Brokers


def kafka_problem(brokers: Brokers) -> str:
    """Why the broker is not ready, empty when it is: it answers and every partition has a leader."""
    # log_level 0: librdkafka would print each refused connection while the broker is still starting
    client = AdminClient({**brokers.librdkafka(), "log_level": 0, "socket.timeout.ms": 2000})
    try:
        metadata = client.list_topics(timeout=2.0)
    except KafkaException as error:
        return str(error.args[0].str())
    waiting = [
        f"{topic.topic}/{partition.id}"
        for topic in metadata.topics.values()
        for partition in topic.partitions.values()
        if partition.leader < 0
    ]
    return f"{len(waiting)} partitions have no leader yet: {', '.join(waiting[:3])}" if waiting else ""
