"""Detect that all earlier changes of a table are captured, by a fence.

A fence is a change that renames one certain row. Once that change is in the change topic, all earlier ones are, too."""

from __future__ import annotations

from collections.abc import Mapping

import orjson
from confluent_kafka import Consumer, KafkaException, TopicPartition

from cdc.model.errors import Retriable
from cdc.model.naming import change_topic
from cdc.model.schema import TableId
from cdc.topology.topology import Topology
from ingest.changes.kafka_released import reader_settings

_TIMEOUT = 10.0
_WORD = "Fence"


class FenceReader:
    """Reads the newest fence in a change topic. Raises Retriable while Kafka is unavailable."""

    row = 1  # id of the row whose name is the fence

    def __init__(self, topology: Topology, table: TableId) -> None:
        self._name, self._routing = change_topic(topology.name, table), topology.routing
        self._topic = self._routing.topic(self._name)
        self._consumer = Consumer(reader_settings(topology))
        self._assigned = False
        self._newest = (0, 0)

    def newest(self) -> tuple[int, int]:
        """Read the records since the last call. Raises Retriable while Kafka is unavailable."""
        try:
            if not self._assigned:
                there = self._consumer.list_topics(self._topic, timeout=_TIMEOUT).topics[self._topic].partitions
                self._consumer.assign([TopicPartition(self._topic, number, 0) for number in there])
                self._assigned = bool(there)
            while self._assigned and (records := self._consumer.consume(500, timeout=0.2)):
                for record in records:
                    value, own = record.value(), self._routing.own_key(self._name, record.key() or b"")
                    if record.error() is None and value is not None and own is not None:
                        self._read(orjson.loads(value))
        except KafkaException as error:
            raise Retriable(f"Kafka: {error.args[0].str()}") from error
        return self._newest

    def _read(self, event: Mapping[str, object]) -> None:
        row, source = event.get("after"), event.get("source")
        if isinstance(row, dict) and isinstance(source, dict) and row.get("id") == self.row:
            fence = _fence_of(str(row.get("name")))
            self._newest = max(self._newest, (fence, int(source["sequence"])))

    @staticmethod
    def name_of(fence: int) -> str:
        """Return the name that the row gets for the fence with this number."""
        return f"{_WORD} {fence}"

    def close(self) -> None:
        """Close the Kafka client."""
        self._consumer.close()


def _fence_of(name: str) -> int:
    word, _, number = name.partition(" ")
    return int(number) if word == _WORD and number.isdecimal() else 0
