"""Read single records of change topics, at offsets that the ledger has."""

from __future__ import annotations

import time

import orjson
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from cdc.model.brokers import Brokers
from cdc.model.errors import Retriable
from cdc.model.event import Position
from ingest.ledger.ledger import PartitionLedger
from ingest.ledger.places import Reach, tag_of
from ingest.ledger.run_ledger import Ledger
from tailorbird.verify.log.log_stage import LogImage

_TIMEOUT = 60.0  # seconds that the ledger may need to reach a position
_ANSWER = 20.0


class KafkaRecords:
    """The far end of one table (implements `log_stage.FarTable`)."""

    def __init__(self, brokers: Brokers, ledger: Ledger, partition_ledger: PartitionLedger) -> None:
        self._brokers, self._ledger, self._partition_ledger = brokers, ledger, partition_ledger
        self._source = partition_ledger.schema.table_id.source
        self._consumer: Consumer | None = None

    def covers(self, position: Position, *, wait: bool) -> bool:
        """Return whether the ledger has reached a position. With `wait`, wait up to 60 seconds while it reads the
        log."""
        deadline = time.monotonic() + (_TIMEOUT if wait else 0.0)
        while True:
            self._ledger.poll(0.0 if not wait else 0.02)
            reached = self._ledger.topology_ledger.reached.get(self._source)
            if reached is not None and Reach(reached.position).includes(position):
                return True
            if time.monotonic() >= deadline:
                return False

    def record(self, partition: int, offset: int) -> LogImage | None:
        """Return the record at an offset. None if compaction has removed it. Raises Retriable while Kafka is
        unavailable."""
        try:
            value = self._value(partition, offset)
        except KafkaException as error:
            raise Retriable(f"Kafka at {self._brokers}: {error.args[0].str()}") from error
        if value is None:
            return None
        envelope = orjson.loads(value)
        tag = tag_of(envelope["source"])
        reported = f"{self._partition_ledger.topic}, partition {partition}, offset {offset}" + (
            f", {tag}" if tag else ", a snapshot"
        )
        return LogImage(row=envelope["after"], tag=tag, reported=reported)

    def close(self) -> None:
        """Close the consumer."""
        if self._consumer is not None:
            self._consumer.close()

    def _value(self, partition: int, offset: int) -> bytes | None:
        if self._consumer is None:
            self._consumer = Consumer(self._brokers.reader("tailorbird-verify", fetch_wait_max_ms=10))
        self._consumer.assign([TopicPartition(self._partition_ledger.topic, partition, offset)])
        message = self._consumer.poll(_ANSWER)
        if message is None:
            raise Retriable(
                f"Kafka does not return {self._partition_ledger.topic}, partition {partition}, offset {offset}"
            )
        error = message.error()
        if error is not None:
            if error.code() == KafkaError._PARTITION_EOF:
                return None
            raise KafkaException(error)
        return message.value() if message.offset() == offset else None
