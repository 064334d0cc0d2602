"""Read committed records of Kafka from given offsets on, without a consumer group, and the ids of topics.

Readers that follow topics for as long as a process runs (signals of captures, the ledger, mirrored topics), and those
that must not wait for an end that a recreated topic does not have (joins), have loops of their own.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from cdc.model.brokers import Brokers
from cdc.model.errors import Retriable

Partition = tuple[str, int]  # topic and number
_BATCH = 5_000
_LOOK = 0.1  # seconds
_UNKNOWN = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC)
_RUNNING = "is Kafka running? `tailorbird stack status`"


def topic_ids(brokers: Brokers, topics: Collection[str], *, timeout: float = 20.0) -> dict[str, str]:
    """Return the ids of those topics that exist. A topic that was deleted and created again has another id, so stored
    offsets of the former one mean nothing in it.

    Raises Retriable while Kafka is unavailable."""
    found: dict[str, str] = {}
    if not topics:
        return found
    try:
        with AdminClient({**brokers.librdkafka(), "log_level": 0}) as admin:
            answers = admin.describe_topics(TopicCollection(sorted(topics)), request_timeout=timeout)
            for topic, answer in answers.items():
                try:
                    found[topic] = str(answer.result(timeout).topic_id)
                except KafkaException as error:
                    if error.args[0].code() not in _UNKNOWN:
                        raise
    except KafkaException as error:
        raise Retriable(f"Kafka at {brokers}: ids of topics: {error.args[0].str()}", _RUNNING) from error
    return found


class KafkaReader(AbstractContextManager["KafkaReader"]):
    """A consumer that reads parts of topics. Not thread-safe. `settings` are as in `Brokers.reader`.

    Every method raises Retriable if Kafka is unavailable, or returns nothing for `answer` seconds; `what` is then a
    part of the message.
    """

    def __init__(self, brokers: Brokers, group: str, what: str, *, answer: float = 20.0, **settings: Any) -> None:
        self._brokers, self._what, self._answer = brokers, what, answer
        # a broker delays the answer at the end of a partition by `fetch_wait_max_ms`
        self._settings = brokers.reader(group, **{"fetch_wait_max_ms": 10, **settings})
        self._settings["error_cb"] = lambda error: None  # a lost connection is opened again; `answer` limits that
        self._consumer: Consumer | None = None

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the consumer. A later call opens another one."""
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None

    def partitions(self, topic: str) -> list[Partition]:
        """Return the partitions of a topic; none if it does not exist."""
        with self._connected() as consumer:
            found = consumer.list_topics(topic, timeout=self._answer).topics[topic]
            if found.error is not None and found.error.code() not in _UNKNOWN:
                raise KafkaException(found.error)
            return [(topic, number) for number in sorted(found.partitions)]

    def bounds(self, at: Partition) -> tuple[int, int]:
        """Return the first retained offset of a partition, and its end."""
        with self._connected() as consumer:
            low, high = consumer.get_watermark_offsets(TopicPartition(*at), timeout=self._answer)
            return int(low), int(high)

    def records(
        self, starts: Mapping[Partition, int], ends: Mapping[Partition, int] | None = None
    ) -> Iterator[Message]:  # fmt: skip
        """Yield the records of partitions from the offsets `starts` up to, but not including, `ends`.

        Records of one partition are in order. Without `ends`, it yields all that were committed before it reaches the
        end of each partition. While a transaction before `ends` is open, it waits.
        """
        left = {at for at, start in starts.items() if ends is None or max(start, 0) < ends[at]}
        if not left:
            return
        with self._connected() as consumer:
            consumer.assign([TopicPartition(*at, starts[at]) for at in sorted(left)])
            deadline = time.monotonic() + self._answer
            try:
                while left:
                    messages = [one for one in _some(consumer, _LOOK) if not _failed(one)]
                    for message in messages:
                        at, offset = _place(message)
                        if at not in left:
                            continue
                        end = None if ends is None else ends[at]
                        if message.error() is None:
                            if end is None or offset < end:
                                yield message
                            ended = end is not None and offset + 1 >= end
                        else:  # the end of the partition as of now
                            ended = end is None or offset >= end
                        if ended:
                            left.discard(at)
                            consumer.incremental_unassign([TopicPartition(*at)])
                    if messages:  # after the caller has used them, which may take long
                        deadline = time.monotonic() + self._answer
                    elif time.monotonic() > deadline:
                        raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
            finally:
                if consumer is self._consumer:  # not closed by an error of the caller
                    consumer.unassign()

    def first(self, at: Partition, offset: int) -> Message | None:
        """Return the first record of a partition at or after an offset; None if there is none."""
        return next(self.records({at: offset}), None)

    @contextmanager
    def _connected(self) -> Iterator[Consumer]:
        try:
            if self._consumer is None:
                self._consumer = Consumer(self._settings)
            yield self._consumer
        except KafkaException as error:
            cause: Any = error.args[0]
            raise Retriable(f"Kafka at {self._brokers}: {self._what}: {cause.str()}", _RUNNING) from error


class NewRecords:
    """Reads partition 0 of a topic once from its beginning, and then only what is new. Waits at the first call only."""

    def __init__(self, brokers: Brokers, group: str, topic: str) -> None:
        self._brokers, self._group, self._topic = brokers, group, topic
        self._consumer: Consumer | None = None
        self.next: int = OFFSET_BEGINNING  # the next offset

    def read(self) -> Iterator[tuple[int, bytes | None]]:
        """Yield offset and value of each new record. Ends early while Kafka is unavailable; the next call continues."""
        try:
            first = self._consumer is None
            consumer = self._consumer or self._open()
            deadline = time.monotonic() + 10.0
            while consumer is not None and time.monotonic() < deadline:
                messages = _some(consumer, 0.25 if first else 0.0)
                ended = not messages and not first
                for message in messages:  # all of them: records may follow an end, and are not returned again
                    if ended := not _failed(message) and message.error() is not None:
                        continue
                    if message.error() is None:
                        _, offset = _place(message)
                        self.next = offset + 1
                        yield offset, message.value()
                if ended:
                    return
        except KafkaException:
            self.close()

    def close(self) -> None:
        """Close the connection, but keep the offset."""
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None

    def _open(self) -> Consumer | None:
        consumer = Consumer(self._brokers.reader(self._group))
        if self._topic not in consumer.list_topics(timeout=10.0).topics:
            consumer.close()
            return None
        consumer.assign([TopicPartition(self._topic, 0, self.next)])
        self._consumer = consumer
        return consumer


def _some(consumer: Consumer, seconds: float) -> list[Message]:
    """Return the messages that are there; wait for the first one."""
    first = consumer.poll(seconds)
    return [] if first is None else [first, *consumer.consume(_BATCH, 0)]


def _place(message: Message) -> tuple[Partition, int]:
    return (message.topic() or "", message.partition() or 0), message.offset() or 0


def _failed(message: Message) -> bool:
    """Return whether a message is an error that passes. Raises KafkaException for one that does not."""
    error = message.error()
    if error is None or error.code() == KafkaError._PARTITION_EOF:
        return False
    if not error.retriable():
        raise KafkaException(error)
    return True
