"""Find the keys of rows that changed since a position, by reading the end of the topics instead of the table."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, TopicPartition

from cdc.model.brokers import Brokers
from cdc.model.errors import Retriable
from cdc.model.naming import TRUNCATE_KEY
from cdc.process.kafka_positions import WholePositions
from ingest.ledger.ledger import Partition, read_reach
from ingest.ledger.places import Reach

_ANSWER = 20.0
Ends = Mapping[Partition, int]


class KafkaChangedKeys:
    """Reads topics from given offsets to their ends. Raises Retriable while Kafka is unavailable."""

    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers
        self._consumer = Consumer(brokers.reader("tailorbird-verify", fetch_wait_max_ms=10))

    def keys(self, starts: Ends, own: Callable[[bytes], bytes | None]) -> set[bytes] | None:
        """Return the keys of a table's records from these offsets on. `own` returns a record's key in the table, or
        None if it is another table's (`naming.Routing.own_key`).

        None if there is a truncate marker among them, which concerns all rows, or if the topic was recreated."""
        for (topic, partition), offset in starts.items():
            _, high = self._consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=_ANSWER)
            if high < offset:
                return None
        keys = (own(one.key() or b"") for one in self._records(starts))
        found = {key for key in keys if key is not None}
        return None if TRUNCATE_KEY in found else found

    def ends(self, topic: str, source: str, cut: Reach) -> Ends | None:
        """Return the ends that a source's topics had at a position (`cut`), by the newest positions record before
        it.

        `topic`: the topic of positions. None if it no longer has such a record.
        """
        found, whole = None, WholePositions(self._brokers, topic, "tailorbird-verify")
        partitions = self._consumer.list_topics(topic, timeout=_ANSWER).topics[topic].partitions
        for record in self._records({(topic, number): OFFSET_BEGINNING for number in partitions}):
            one = whole.read(
                record.partition() or 0, record.offset() or 0, record.key(), record.value(), read_reach
            )  # fmt: skip
            if one is not None and one.source == source and cut.includes(one.position):
                found = one.ends
        return found

    def close(self) -> None:
        """Close the consumer."""
        self._consumer.close()

    def _records(self, starts: Ends) -> Iterator[Message]:
        left, deadline = set(starts), time.monotonic() + _ANSWER
        try:
            self._consumer.assign([TopicPartition(*one, offset) for one, offset in starts.items()])
            while left:
                for message in self._consumer.consume(10_000, 0.05):
                    deadline = time.monotonic() + _ANSWER
                    error = message.error()
                    if error is None:
                        yield message
                    elif error.code() == KafkaError._PARTITION_EOF:
                        left.discard((message.topic() or "", message.partition() or 0))
                    elif not error.retriable():
                        raise KafkaException(error)
                if time.monotonic() > deadline:
                    topic = sorted(left)[0][0]
                    raise Retriable(f"Kafka at {self._brokers} does not return records of {topic}")
        except KafkaException as error:
            raise Retriable(f"Kafka at {self._brokers}: {error.args[0].str()}") from error
