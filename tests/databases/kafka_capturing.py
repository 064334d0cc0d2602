"""The same capture into Kafka, for checks of its log with `verify`."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Any, cast

from confluent_kafka import Consumer, KafkaError, TopicPartition

from cdc.model.naming import table_named
from ingest.log.kafka_log import KafkaLog
from ingest.log.kafka_topics import make_topics
from ingest.records.capture_interfaces import Checkpoint, OpenLog, Record
from tests.databases.capturing import KilledError, ThreadedCapture


class DyingKafkaLog:
    """Kafka's log, whose process dies at a commit on request."""

    def __init__(self, capturing: ThreadedKafkaCapture, inner: KafkaLog) -> None:
        self._capturing, self._inner = capturing, inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def commit(self, checkpoint: Checkpoint) -> None:
        """See `ChangeLog`."""
        if self._capturing.dies():
            raise KilledError
        self._inner.commit(checkpoint)
        self._capturing.broker.checkpoints.append(checkpoint)


@dataclass
class ThreadedKafkaCapture(ThreadedCapture):
    """A capture into Kafka; `broker` keeps the checkpoints."""

    servers: str = ""

    def opened(self) -> OpenLog:
        """See `ThreadedCapture`."""
        topics = make_topics(self.topology, self.source)
        return cast("OpenLog", DyingKafkaLog(self, KafkaLog(self.topology, self.source, topics)))

    def records(self) -> dict[str, list[Record]]:
        """Return the committed records by table's topic, partition by partition, as if no tables shared a topic."""
        consumer = Consumer({
            "bootstrap.servers": self.servers, "group.id": self.topology.name, "isolation.level": "read_committed",
            "enable.partition.eof": True,
        })  # fmt: skip
        found: dict[str, list[Record]] = {}
        try:
            known = consumer.list_topics(timeout=30).topics
            places = [
                TopicPartition(name, partition, 0)
                for name, topic in known.items() if name.startswith(f"{self.topology.name}.")
                for partition in topic.partitions
            ]  # fmt: skip
            consumer.assign(places)
            left = {(one.topic, one.partition) for one in places}
            while left:
                for message in consumer.consume(1000, timeout=20):
                    place = message.topic() or "", message.partition() or 0
                    error = message.error()
                    if error is None:
                        stored = message.key() or b""
                        name = table_named(stored) or place[0]
                        key = self.topology.routing.own_key(name, stored)
                        assert key is not None
                        found.setdefault(name, []).append(Record(name, key, message.value(), place[1]))
                    elif error.code() == KafkaError._PARTITION_EOF:
                        left.discard(place)
        finally:
            with suppress(RuntimeError):
                consumer.close()
        return {name: sorted(records, key=lambda one: one.partition or 0) for name, records in found.items()}
