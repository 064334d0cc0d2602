"""Read single records of a change topic at exact offsets."""

from __future__ import annotations

import contextlib
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from cdc.model.brokers import Brokers
from cdc.model.errors import Retriable

_ANSWER = 20.0  # seconds
_RUNNING = "is Kafka running? `tailorbird stack status`"
_UNKNOWN = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION)


class MissingRecord(NamedTuple):
    """The reason `why` the topic does not have a record."""

    why: str


class RecordReader(contextlib.AbstractContextManager["RecordReader"]):
    """Reads committed records one by one. Leaving the context closes the consumer."""

    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers
        self._consumer = Consumer(brokers.reader("tailorbird-explain", auto_offset_reset="error", fetch_wait_max_ms=10))

    def __exit__(self, *exc: object) -> None:
        self._consumer.close()

    def record(self, topic: str, partition: int, offset: int) -> tuple[bytes | None, bytes | None] | MissingRecord:
        """Return the key and value of a record, or why it is missing. Raises Retriable while Kafka is unavailable."""
        place = f"{topic}, partition {partition}, offset {offset}"
        try:
            low, high = self._consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=_ANSWER)
            if not low <= offset < high:
                begins = "the log begins at" if offset < low else "the topic was recreated: it ends at"
                return MissingRecord(f"{begins} offset {low if offset < low else high}")
            self._consumer.assign([TopicPartition(topic, partition, offset)])
            message: Any = self._consumer.poll(_ANSWER)
        except KafkaException as error:
            if error.args[0].code() in _UNKNOWN:
                return MissingRecord("the topic or its partition does not exist")
            raise Retriable(f"Kafka at {self._brokers}: {error.args[0].str()}", _RUNNING) from error
        if message is None:
            raise Retriable(f"Kafka did not return {place} in {_ANSWER:.0f} s", _RUNNING)
        fault = message.error()
        if fault is not None and fault.code() != KafkaError._PARTITION_EOF:
            raise Retriable(f"{place}: {fault.str()}", _RUNNING)
        if fault is not None or message.offset() != offset:
            return MissingRecord("compaction removed it: the log has a newer record of its row or its tombstone")
        return message.key(), message.value()
