"""Read single records of the topic `…positions`; implements `positions.PositionMarks`."""

from __future__ import annotations

import time

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from cdc.formats.position_records import source_key
from cdc.model.errors import Retriable
from cdc.model.naming import positions_topic, transactional_id
from cdc.process.kafka_positions import WholePositions
from cdc.topology.topology import Topology
from ingest.changes.kafka_released import RUNNING, TIMEOUT
from ingest.changes.positions import PositionMark
from ingest.records.records import checkpoint_from


class PositionRecords:
    """The position records of one source, in its partition of `…positions`. The consumer must have no other user."""

    def __init__(self, consumer: Consumer, topology: Topology, source: str, partition: int) -> None:
        self._consumer, self._key = consumer, transactional_id(topology.name, source).encode()
        self._topic, self._partition = positions_topic(topology.name), partition
        self._positions = WholePositions(topology.log.brokers, self._topic, "tailorbird-changes")

    def bounds(self) -> tuple[int, int]:
        """Return the first retained offset and the end offset of the partition. Implements `PositionMarks`."""
        low, high = self._consumer.get_watermark_offsets(
            TopicPartition(self._topic, self._partition), timeout=TIMEOUT
        )  # fmt: skip
        return int(low), int(high)

    def first(self, offset: int) -> PositionMark | None:
        """Return the first record at or after an offset; None if there is none. Implements `PositionMarks`."""
        _, high = self.bounds()
        if offset >= high:
            return None
        self._consumer.assign([TopicPartition(self._topic, self._partition, offset)])
        deadline = time.monotonic() + TIMEOUT
        try:
            while time.monotonic() < deadline:
                for message in self._consumer.consume(20, 0.05):
                    error, at = message.error(), message.offset() or 0
                    if error is not None:
                        if error.code() == KafkaError._PARTITION_EOF and at >= high:
                            return None
                        if error.code() != KafkaError._PARTITION_EOF and not error.retriable():
                            raise KafkaException(error)
                    elif source_key(message.key()) == self._key:
                        read = self._positions.read(
                            self._partition, at, message.key(), message.value(), checkpoint_from
                        )  # fmt: skip
                        if read is not None:
                            return PositionMark(at, message.timestamp()[1], read[0].position, read[1])
        finally:
            self._consumer.unassign()
        raise Retriable(f"Kafka does not return records of {self._topic}", RUNNING)
