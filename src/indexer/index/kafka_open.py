"""Track the rows of an index that have open (unsettled) dead-letter records.

The topic is read once from its start, then only new records are read. So a restart forgets nothing, and records that
other indexers wrote are included. While Kafka is unavailable, indexing continues and records are settled later."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition

from cdc.model.brokers import Brokers
from cdc.model.dead_letter_end import STAGE
from cdc.process.kafka_foreign import tolerated

_EVERY = 5.0  # seconds between two reads of the topic
_TIMEOUT = 10.0


class OpenRows:
    """The rows of one index with an open dead-letter record: row key → version that was last refused, and record
    offset."""

    def __init__(self, brokers: Brokers, topic: str, index: str) -> None:
        self._brokers, self._topic, self._index = brokers, topic, index
        self._consumer: Consumer | None = None
        self._next: int = OFFSET_BEGINNING
        self._looked = -_EVERY
        self.rows: dict[bytes, tuple[int, int]] = {}

    def look(self) -> None:
        """Read the records that arrived since the last call. Does nothing if that was less than a few seconds ago."""
        if time.monotonic() - self._looked < _EVERY:
            return
        self._looked = time.monotonic()
        try:
            self._read()
        except KafkaException:  # the next call continues where this one stopped
            if self._consumer is not None:
                self._consumer.close()
                self._consumer = None

    def _read(self) -> None:
        first = self._consumer is None
        if self._consumer is None:
            consumer = Consumer(self._brokers.reader("tailorbird-index-dead-letters"))
            if self._topic not in consumer.list_topics(timeout=_TIMEOUT).topics:
                consumer.close()
                return
            consumer.assign([TopicPartition(self._topic, 0, self._next)])
            self._consumer = consumer
        deadline = time.monotonic() + _TIMEOUT
        while time.monotonic() < deadline:
            found = self._consumer.consume(2000, timeout=0.05 if first else 0.0)
            ended = not found and not first
            for message in found:  # all of them: records may follow an end, and are not returned again
                error, offset = message.error(), message.offset() or 0
                ended = error is not None and error.code() == KafkaError._PARTITION_EOF
                if error is None:
                    self._next = offset + 1
                    self._fold(message.value(), offset)
                elif not ended and not error.retriable():
                    raise KafkaException(error)
            if ended:
                return

    def _fold(self, value: bytes | None, offset: int) -> None:
        tolerated(self._topic, offset, value, lambda reported: self._take(reported, offset))

    def _take(self, reported: Mapping[str, Any], offset: int) -> None:
        if reported.get("stage") == "indexer" and reported.get("index") == self._index:
            self.rows[bytes.fromhex(str(reported.get("row", "")))] = int(reported.get("version", 0)), offset
        elif reported.get("stage") == STAGE:
            if reported.get("of") == ["indexer", self._index]:
                self.rows.clear()
            stage, name, row = reported.get("row") or ("", "", "")
            if (stage, name) == ("indexer", self._index):
                self.rows.pop(bytes.fromhex(row), None)
