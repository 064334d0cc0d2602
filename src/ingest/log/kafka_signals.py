"""Send and read signals in the topic `…signals`, like Debezium's Kafka signal channel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka import KafkaError as Code

from cdc.model import naming
from cdc.model.errors import Retriable
from cdc.process.kafka_foreign import tolerated
from cdc.topology.topology import Topology
from ingest.capture.signals import Signal, signal_of
from ingest.log.kafka_topics import TIMEOUT, client_settings


class KafkaSignals:
    """Reads the signals to one source; implements `signals.Signals`. Only partition 0 of the topic is used."""

    def __init__(self, topology: Topology, source: str) -> None:
        self._topic = naming.signals_topic(topology.name)
        self._key = naming.transactional_id(topology.name, source).encode()
        self._brokers = topology.log.brokers
        self._consumer: Any = None
        self._next: int | None = None

    def read(self, start: int | None) -> tuple[list[Signal], int | None]:
        """Implements `Signals.read`. Skips invalid signals with a warning. Raises Retriable if Kafka is unavailable."""
        found, following = self.values(start)
        return [signal_of(value) for value in found], following

    def values(self, start: int | None) -> tuple[list[Mapping[str, Any]], int | None]:
        """Return the same signals as the JSON objects in the topic. Raises Retriable if Kafka is unavailable."""
        found: list[Mapping[str, Any]] = []
        try:
            if self._consumer is None:
                self._open(start)
            while (message := self._consumer.poll(0)) is not None:
                error = message.error()
                if error is not None:
                    if error.code() != Code._PARTITION_EOF and not error.retriable():
                        raise KafkaException(error)
                    continue
                self._next = message.offset() + 1
                if message.key() != self._key or message.value() is None:
                    continue
                if tolerated(self._topic, message.offset(), message.value(), signal_of) is not None:
                    found.append(orjson.loads(message.value()))
        except KafkaException as exception:
            raise Retriable(f"Kafka at {self._brokers}: signals: {exception.args[0].str()}") from exception
        return found, self._next

    def _open(self, start: int | None) -> None:
        self._consumer = Consumer(
            client_settings(
                self._brokers,
                group_id="tailorbird-signals",  # required by the client; nothing is ever committed
                enable_auto_commit=False,
                isolation_level="read_committed",
                auto_offset_reset="earliest",
            )
        )
        at = TopicPartition(self._topic, 0)
        if start is None:
            _, start = self._consumer.get_watermark_offsets(at, timeout=TIMEOUT)
        self._next = start
        self._consumer.assign([TopicPartition(self._topic, 0, start)])

    def close(self) -> None:
        """Close the connection."""
        if self._consumer is not None:
            self._consumer.close()


def send(topology: Topology, source: str, value: dict[str, Any]) -> int:
    """Send a signal to the capture of a source, and return its offset once Kafka has acknowledged it.

    The capture has executed the signal when it commits a greater offset. Raises Retriable while Kafka is unavailable.
    """
    brokers = topology.log.brokers
    failed: list[Any] = []
    offsets: list[int] = []

    def delivered(error: Any, message: Any) -> None:
        if error:
            failed.append(error)
        else:
            offsets.append(message.offset())

    producer = Producer(client_settings(brokers, acks="all", message_timeout_ms=int(TIMEOUT * 1000)))
    key = naming.transactional_id(topology.name, source).encode()
    producer.produce(
        naming.signals_topic(topology.name), orjson.dumps(value), key, partition=0,
        on_delivery=delivered,
    )  # fmt: skip
    if producer.flush(TIMEOUT) or failed:
        why = failed[0].str() if failed else "no answer"
        remedy = "check that Kafka is running and that the topic exists"
        raise Retriable(f"Kafka at {brokers}: cannot send the signal: {why}", remedy)
    return offsets[0]
