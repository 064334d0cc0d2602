"""Reading parts of topics: every record up to the end once, and errors that name what was read."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, KafkaError

from cdc.model.brokers import Brokers
from cdc.model.errors import Retriable
from cdc.process import kafka_reader
from cdc.process.kafka_reader import KafkaReader
from tests.support.fake_consumer import FakeConsumer, FakeMessage, end


def read(
    monkeypatch: pytest.MonkeyPatch, consumer: FakeConsumer, starts: dict[int, int], ends: dict[int, int] | None = None
) -> list[tuple[int, int]]:
    """Return partition and offset of the records that a reader yields."""
    monkeypatch.setattr(kafka_reader, "Consumer", lambda settings: consumer)
    with KafkaReader(Brokers("none:1"), "g", "the part cannot be read", answer=0.0) as reader:
        places: Any = {("t", p): at for p, at in starts.items()}
        bounds = None if ends is None else {("t", p): at for p, at in ends.items()}
        return [(one.partition() or 0, one.offset() or 0) for one in reader.records(places, bounds)]


def records(*offsets: int, partition: int = 0) -> list[FakeMessage]:
    return [FakeMessage(offset, b"v", partition=partition) for offset in offsets]


def test_partitions_are_read_to_their_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Records after the first end of a partition are left to the next reading."""
    consumer = FakeConsumer([*records(4, 6), end(7), *records(7)], [*records(1, partition=1), end(2, partition=1)])
    assert read(monkeypatch, consumer, {0: 4, 1: OFFSET_BEGINNING}) == [(0, 4), (0, 6), (1, 1)]
    assert consumer.log == ["assign 0@4 1@-2", "without 0", "without 1", "unassign", "close"]


def test_given_ends_are_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither compaction nor the control records of transactions hide an end. An end before it is waited for: a
    transaction is open there."""
    consumer = FakeConsumer(
        [*records(0, 3, 5)], [*records(8, partition=1), end(9, partition=1)], [end(10, partition=1)]
    )
    assert read(monkeypatch, consumer, {0: 0, 1: 8, 2: 5, 3: OFFSET_BEGINNING}, {0: 5, 1: 10, 2: 5, 3: 0}) == [
        (0, 0), (0, 3), (1, 8),
    ]  # fmt: skip
    assert consumer.log[0] == "assign 0@0 1@8"
    assert read(monkeypatch, consumer, {0: 5}, {0: 5}) == []


@pytest.mark.parametrize("answers", [[], [[end(3)]], [[FakeMessage(0, code=KafkaError.TOPIC_AUTHORIZATION_FAILED)]]])
def test_an_unavailable_part_is_an_error(monkeypatch: pytest.MonkeyPatch, answers: list[list[FakeMessage]]) -> None:
    """No answer, a transaction that stays open, a denied topic: the reader gives the partitions back and says what it
    read."""
    consumer = FakeConsumer(*answers)
    with pytest.raises(Retriable, match="Kafka at none:1: the part cannot be read: ") as failed:
        read(monkeypatch, consumer, {0: 0}, {0: 9})
    assert "stack status" in failed.value.hint
    assert consumer.log[-2:] == ["unassign", "close"]


def test_a_reader_that_is_closed_between_two_records_is_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error of the caller leaves the loop, and closes the reader before the iterator ends."""
    consumer = FakeConsumer(records(0, 1))
    monkeypatch.setattr(kafka_reader, "Consumer", lambda settings: consumer)
    with KafkaReader(Brokers("none:1"), "g", "the part cannot be read") as reader:
        found = reader.records({("t", 0): 0})
        next(found)
    found.close()  # type: ignore[attr-defined]  # a generator
    assert consumer.log == ["assign 0@0", "close"]
