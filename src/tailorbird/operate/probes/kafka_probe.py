"""Check whether a Kafka broker answers and every partition has a leader."""

from __future__ import annotations

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from cdc.model.brokers import Brokers, refuses


def kafka_problem(brokers: Brokers) -> str:
    """Return the reason why Kafka is not ready, or an empty text if every partition has a leader."""
    # log_level 0: librdkafka would print each refused connection while the broker starts
    refused = list[str]()

    def on_error(error: KafkaError) -> None:
        if refuses(error.name(), error.str()):
            refused.append(f"log.security: {error.str()}")

    settings = {**brokers.librdkafka(), "log_level": 0, "socket.timeout.ms": 2000, "error_cb": on_error}
    try:
        with AdminClient(settings) as client:
            try:
                metadata = client.list_topics(timeout=2.0)
            except KafkaException:
                client.poll(0)  # runs `on_error`, which records the reason
                raise
    except KafkaException as error:  # raised by the client itself if a file of log.security cannot be used
        return refused[-1] if refused else str(error.args[0].str())
    waiting = [
        f"{topic.topic}/{partition.id}"
        for topic in metadata.topics.values()
        for partition in topic.partitions.values()
        if partition.leader < 0
    ]
    return f"{len(waiting)} partitions have no leader yet: {', '.join(waiting[:3])}" if waiting else ""
