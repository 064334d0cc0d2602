"""Read the dead-letter topic, and write records that settle dead letters."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition

from cdc.model.brokers import Brokers
from cdc.model.dead_letter_end import KEY, resolved_dead_letters
from cdc.model.errors import Retriable
from cdc.model.naming import dead_letter_topic, schemas_topic
from cdc.model.schema import TableId, TableSchema, schema_from_json
from cdc.process.kafka_foreign import own_record
from cdc.topology.topology import Topology
from tailorbird.operate.status.dead_letters import DeadLetterList, DeadLetterRecord, DeadLetterRow, OpenDeadLetters
from tailorbird.operate.status.proc_watch import Watch

_TIMEOUT = 10.0
_POLL = 0.05  # seconds; `consume` always waits this long unless _AT_A_TIME records are there
_AT_A_TIME = 2000
_REMEDY = "is Kafka running? `tailorbird stack status`"
_IDS_A_RECORD = 5000


class DeadLetterReader:
    """Reads the dead letters of a topology; each call of `read` adds the new ones. Close it at the end.

    Only committed records are read. `read` raises Retriable while Kafka is unavailable; the next call continues."""

    def __init__(self, topology: Topology, dead_letters: DeadLetterList) -> None:
        self._servers, self._topic = topology.log.brokers, dead_letter_topic(topology.name)
        self._dead_letters = dead_letters
        self._consumer: Consumer | None = None
        self._next: dict[int, int] = {}

    def __enter__(self) -> DeadLetterReader:
        return self

    def __exit__(self, *_: object) -> None:
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None

    def read(self) -> DeadLetterList:
        """Return all dead letters that are committed by now."""
        with _translated(self._servers, "the dead letters cannot be read"):
            if self._consumer is None:
                self._consumer = _consumer(self._servers)
            known = self._consumer.list_topics(timeout=_TIMEOUT).topics
            partitions = sorted(known[self._topic].partitions) if self._topic in known else []
            records = records_between(self._consumer, self._topic, {p: self._next.get(p) for p in partitions})
            # several partitions are ordered by their timestamps only; there is one partition unless an operator added
            # more
            for record in records if len(partitions) == 1 else sorted(records, key=lambda one: one.at_ms):
                self._next[record.partition] = record.offset + 1
                self._dead_letters.add(record)
        return self._dead_letters


def records_between(consumer: Consumer, topic: str, starts: Mapping[int, int | None]) -> Iterator[DeadLetterRecord]:
    """Yield the records of partitions from the given offsets (None: the beginning) to the current end.

    Raises KafkaException if Kafka does not answer."""
    if not starts:
        return
    consumer.assign([TopicPartition(topic, p, OFFSET_BEGINNING if at is None else at) for p, at in starts.items()])
    waits = set(starts)
    deadline = time.monotonic() + _TIMEOUT
    while waits:
        for message in consumer.consume(_AT_A_TIME, timeout=_POLL):
            deadline = time.monotonic() + _TIMEOUT
            error = message.error()
            if error is None:
                yield DeadLetterRecord(
                    message.key(), message.value(), message.timestamp()[1], message.partition() or 0,
                    message.offset() or 0,
                )  # fmt: skip
            elif error.code() == KafkaError._PARTITION_EOF:
                waits.discard(message.partition() or 0)
            elif not error.retriable():
                raise KafkaException(error)
        if time.monotonic() > deadline:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
    consumer.unassign()


def settle(topology: Topology, dead_letters: Sequence[DeadLetterRow], how: str) -> None:
    """Write records that settle dead letters, and return once Kafka has acknowledged them. `how` is stored as the
    reason.

    Raises Retriable while Kafka is unavailable."""
    servers, failed = topology.log.brokers, []

    def reported(error: KafkaError | None, _: object) -> None:
        if error is not None:
            failed.append(error)

    with _translated(servers, "the dead letters are not settled"):
        producer = Producer({**servers.librdkafka(), "enable.idempotence": True, "log_level": 0})
        for start in range(0, len(dead_letters), _IDS_A_RECORD):
            some = dead_letters[start : start + _IDS_A_RECORD]
            value = resolved_dead_letters({one.id: (one.partition, one.offset) for one in some}, how)
            producer.produce(dead_letter_topic(topology.name), key=KEY, value=value, partition=0, on_delivery=reported)
        if producer.flush(_TIMEOUT) or failed:
            raise KafkaException(failed[0] if failed else KafkaError(KafkaError._TIMED_OUT))


def records_at(topology: Topology, places: Iterable[tuple[int, int]]) -> dict[tuple[int, int], DeadLetterRecord]:
    """Return the records at the given (partition, offset). Records that retention removed are missing, as is offset
    -1.

    Raises Retriable while Kafka is unavailable."""
    wanted, found = {place for place in places if place[0] >= 0}, {}
    servers, topic = topology.log.brokers, dead_letter_topic(topology.name)
    with _translated(servers, "the dead letters cannot be read"), _closing(_consumer(servers)) as consumer:
        starts = {p: min(offset for q, offset in wanted if q == p) for p, _ in wanted}
        for record in records_between(consumer, topic, starts):
            if (record.partition, record.offset) in wanted:
                found[record.partition, record.offset] = record
    return found


def newest_schemas(topology: Topology) -> dict[TableId, TableSchema]:
    """Return the newest published schema of each captured table. Raises Retriable while Kafka is unavailable."""
    servers, topic = topology.log.brokers, schemas_topic(topology.name)
    found: dict[TableId, TableSchema] = {}
    with _translated(servers, "the schemas cannot be read"), _closing(_consumer(servers)) as consumer:
        known = consumer.list_topics(timeout=_TIMEOUT).topics
        for record in records_between(
            consumer, topic, dict.fromkeys(known[topic].partitions if topic in known else ())
        ):
            schema = own_record(topic, record.offset, record.value, schema_from_json, record.partition)
            if schema is not None:
                found[schema.table_id] = schema
    return found


def dead_letters_watched(topology: Topology, every: float = 3.0) -> Watch[list[OpenDeadLetters]]:
    """Return a background poller of the numbers of open dead letters."""
    reader = DeadLetterReader(topology, DeadLetterList(topology.name, keep=0))
    return Watch(lambda: reader.read().waiting, name="dead letters", every=every)


def dead_letters_listed(
    topology: Topology, *, keep: int, every: float = 3.0
) -> Watch[tuple[Sequence[OpenDeadLetters], Sequence[DeadLetterRow]]]:
    """Return a background poller of the numbers of open dead letters, and of at most `keep` of them, newest first."""
    reader = DeadLetterReader(topology, DeadLetterList(topology.name, keep=keep))

    def read() -> tuple[Sequence[OpenDeadLetters], Sequence[DeadLetterRow]]:
        found = reader.read()
        return found.waiting, found.dead_letters

    return Watch(read, name="dead letters", every=every)


def waiting_dead_letters(topology: Topology, stage: str, of: str) -> list[DeadLetterRow]:
    """Return the open dead letters of a table or index, newest first. Raises Retriable while Kafka is unavailable."""
    with DeadLetterReader(topology, DeadLetterList(topology.name)) as reader:
        return [one for one in reader.read().dead_letters if (one.stage, one.of) == (stage, of)]


def _consumer(servers: Brokers) -> Consumer:
    return Consumer(servers.reader("tailorbird-dead-letters", fetch_wait_max_ms=10))


@contextmanager
def _closing(consumer: Consumer) -> Iterator[Consumer]:
    try:
        yield consumer
    finally:
        consumer.close()


@contextmanager
def _translated(servers: Brokers, what: str) -> Iterator[None]:
    try:
        yield
    except KafkaException as error:
        kafka_error: Any = error.args[0]
        raise Retriable(f"Kafka at {servers}: {what}: {kafka_error.str()}", _REMEDY) from error
