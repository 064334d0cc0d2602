"""Read single records of a change topic at exact offsets."""

from __future__ import annotations

import contextlib
from typing import NamedTuple

from cdc.model.brokers import Brokers
from cdc.model.errors import Retriable
from cdc.process.kafka_reader import KafkaReader, Partition


class MissingRecord(NamedTuple):
    """The reason `why` the topic does not have a record."""

    why: str


class RecordReader(contextlib.AbstractContextManager["RecordReader"]):
    """Reads committed records one by one. Leaving the context closes the consumer."""

    def __init__(self, brokers: Brokers) -> None:
        what = "the records of a trace cannot be read"
        self._reader = KafkaReader(brokers, "tailorbird-explain", what, auto_offset_reset="error")

    def __exit__(self, *exc: object) -> None:
        self._reader.close()

    def record(self, topic: str, partition: int, offset: int) -> tuple[bytes | None, bytes | None] | MissingRecord:
        """Return the key and value of a record, or why it is missing. Raises Retriable while Kafka is unavailable."""
        try:
            return self._record((topic, partition), offset)
        except Retriable:  # the broker may have cut the log between the two requests
            return self._record((topic, partition), offset)

    def _record(self, at: Partition, offset: int) -> tuple[bytes | None, bytes | None] | MissingRecord:
        topic, _ = at
        if at not in self._reader.partitions(topic):
            return MissingRecord("the topic or its partition does not exist")
        low, high = self._reader.bounds(at)
        if not low <= offset < high:
            begins = "the log begins at" if offset < low else "the topic was recreated: it ends at"
            return MissingRecord(f"{begins} offset {low if offset < low else high}")
        message = self._reader.first(at, offset)
        if message is None or message.offset() != offset:
            return MissingRecord("compaction removed it: the log has a newer record of its row or its tombstone")
        return message.key(), message.value()
