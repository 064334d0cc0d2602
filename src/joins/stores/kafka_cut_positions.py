"""Read the positions topic while a join runs: the source positions that captures have committed."""

from __future__ import annotations

import time
from collections.abc import Iterator

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from cdc.model.brokers import Brokers
from cdc.model.errors import Retriable
from cdc.model.naming import positions_topic
from cdc.process.kafka_positions import WholePositions
from joins.runtime.cuts import Positions, SourcePosition, read_position

_TIMEOUT = 10.0


class PositionsLog:
    """Reads the committed positions of all sources in order. One reader per join, kept between batches."""

    def __init__(self, servers: Brokers, topology: str, topics: frozenset[str]) -> None:
        self._servers, self._topic, self._topics = servers, positions_topic(topology), topics
        self._whole = WholePositions(servers, self._topic, "tailorbird-join-positions")
        self._consumer: Consumer | None = None
        self._next: dict[int, int] = {}

    def read(self, known: Positions) -> list[SourcePosition]:
        """Return every position committed since the last call.

        The first call starts after `known` (the positions of the last barrier), or at the topic's beginning. Raises
        Retriable while Kafka is unavailable, Fatal for a record of a newer version. At least once: after an error, the
        next call returns the positions of the failed call again."""
        try:
            consumer = self._consumer or self._open(known)
            found: list[SourcePosition] = []
            for message in self._messages(consumer):
                position = self._position(message)
                if position is not None:
                    found.append(position)
            return found
        except KafkaException as error:
            self._close()
            raise Retriable(
                f"Kafka at {self._servers}: {error}", "is Kafka running? `tailorbird stack status`"
            ) from error

    def _open(self, known: Positions) -> Consumer:
        consumer = Consumer(self._servers.reader("tailorbird-join-positions", fetch_wait_max_ms=50))
        partitions = consumer.list_topics(self._topic, timeout=_TIMEOUT).topics[self._topic].partitions
        # each source has one partition, but its number is unknown: one partition's offset must not skip another's
        start = min((int(position["offset"]) for position in known.values()), default=0)
        for partition in partitions:
            low, high = consumer.get_watermark_offsets(TopicPartition(self._topic, partition), timeout=_TIMEOUT)
            self._next[partition] = min(max(low, start), high)
        consumer.assign([TopicPartition(self._topic, partition, at) for partition, at in self._next.items()])
        self._consumer = consumer
        return consumer

    def _close(self) -> None:
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None

    def _messages(self, consumer: Consumer) -> Iterator[Message]:
        """Yield the records up to the current ends of the partitions. Transaction markers are skipped."""
        ends = {
            partition: consumer.get_watermark_offsets(TopicPartition(self._topic, partition), timeout=_TIMEOUT)[1]
            for partition in self._next
        }
        deadline = time.monotonic() + _TIMEOUT
        while any(self._next[partition] < end for partition, end in ends.items()):
            message = consumer.poll(0.1)
            if message is None:
                if time.monotonic() > deadline:
                    raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
                continue
            error = message.error()
            if error is not None and error.code() != KafkaError._PARTITION_EOF:
                raise KafkaException(error)
            partition, offset = message.partition(), message.offset()
            assert partition is not None, "a record has a partition"
            assert offset is not None, "a record has an offset"
            self._next[partition] = offset if error is not None else offset + 1
            if error is None:
                yield message

    def _position(self, message: Message) -> SourcePosition | None:
        topics, logged_ms, offset = self._topics, message.timestamp()[1], message.offset() or 0
        return self._whole.read(
            message.partition() or 0,
            offset,
            message.key(),
            message.value(),
            lambda value: read_position(value, offset, topics, logged_ms),
        )
