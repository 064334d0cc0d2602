"""Open dead-letter records of a joined table and of an index: none is overlooked, however Kafka returns them."""

from __future__ import annotations

from typing import Any

import orjson
from confluent_kafka import KafkaError

from cdc.model.brokers import Brokers
from indexer.index.kafka_open import OpenRows
from joins.stores.kafka_open import OpenRecords


class Message:
    """A record, or the end of its partition if it has no value."""

    def __init__(self, offset: int, value: dict[str, Any] | None) -> None:
        self._offset, self._value = offset, value

    def offset(self) -> int:
        return self._offset

    def value(self) -> bytes:
        return orjson.dumps(self._value)

    def error(self) -> KafkaError | None:
        return None if self._value else KafkaError(KafkaError._PARTITION_EOF)


class Consumer:
    """A consumer that returns all its messages at once."""

    def __init__(self, *messages: Message) -> None:
        self._messages = list(messages)

    def consume(self, *_: object, **__: object) -> list[Message]:
        found, self._messages = self._messages, []
        return found


def test_records_after_an_end_of_the_partition_are_read() -> None:
    """A reader at the end receives a record, the end, and the next record in one answer."""
    first, second = (
        {"stage": "join", "table": "t", "topic": "x", "partition": 0, "offset": n, "key": f"k{n}"} for n in (0, 1)
    )
    records = OpenRecords(Brokers("none:1"), "topology", "t")
    consumer: Any = Consumer(Message(5, first), Message(6, None), Message(6, second), Message(7, None))
    records._read(consumer, first=False)
    assert sorted(records._logged["x", 0]) == ["k0", "k1"]


def test_an_indexer_reads_records_after_an_end_of_the_partition() -> None:
    """The same in the indexer."""
    first, second = ({"stage": "indexer", "index": "i", "row": row, "version": 1} for row in ("00", "01"))
    rows = OpenRows(Brokers("none:1"), "letters", "i")
    consumer: Any = Consumer(Message(5, first), Message(6, None), Message(6, second), Message(7, None))
    rows._consumer = consumer
    rows.look()
    assert sorted(rows.rows) == [b"\x00", b"\x01"]
