"""A consumer of Kafka that returns given messages, for `cdc.process.kafka_reader`."""

from __future__ import annotations

from collections.abc import Sequence

from confluent_kafka import KafkaError, TopicPartition


class FakeMessage:
    """A record, the end of its partition, or another error."""

    def __init__(self, offset: int, value: bytes | None = None, *, partition: int = 0, code: int | None = None) -> None:
        self._offset, self._value, self._partition, self._code = offset, value, partition, code

    def topic(self) -> str:
        return "t"

    def partition(self) -> int:
        return self._partition

    def offset(self) -> int:
        return self._offset

    def value(self) -> bytes | None:
        return self._value

    def error(self) -> KafkaError | None:
        return None if self._code is None else KafkaError(self._code)


def end(offset: int, *, partition: int = 0) -> FakeMessage:
    """Return the end of a partition."""
    return FakeMessage(offset, partition=partition, code=KafkaError._PARTITION_EOF)


class FakeConsumer:
    """Returns one of the answers at a time, each a sequence of messages. `log` has the calls that assign partitions."""

    def __init__(self, *answers: Sequence[FakeMessage]) -> None:
        self._answers, self._rest = list(answers), list[FakeMessage]()
        self.log: list[str] = []

    def poll(self, seconds: float) -> FakeMessage | None:
        if not self._rest:
            self._rest = list(self._answers.pop(0)) if self._answers else []
        return self._rest.pop(0) if self._rest else None

    def consume(self, number: int, seconds: float) -> list[FakeMessage]:
        found, self._rest = self._rest, []
        return found

    def assign(self, parts: Sequence[TopicPartition]) -> None:
        self.log.append("assign " + " ".join(f"{part.partition}@{part.offset}" for part in parts))

    def incremental_unassign(self, parts: Sequence[TopicPartition]) -> None:
        self.log.append("without " + " ".join(str(part.partition) for part in parts))

    def unassign(self) -> None:
        self.log.append("unassign")

    def close(self) -> None:
        self.log.append("close")
