"""Read the dead-letter topic, and write records that settle dead letters."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, KafkaError, KafkaException, Message, Producer

from cdc.model.dead_letter_end import KEY, resolved_dead_letters
from cdc.model.errors import Retriable
from cdc.model.naming import dead_letter_topic, schemas_topic
from cdc.model.schema import TableId, TableSchema, schema_from_json
from cdc.process.kafka_foreign import own_record
from cdc.process.kafka_reader import KafkaReader, Partition
from cdc.topology.topology import Topology
from tailorbird.operate.status.dead_letters import DeadLetterList, DeadLetterRecord, DeadLetterRow, OpenDeadLetters
from tailorbird.operate.status.proc_watch import Watch

_TIMEOUT = 10.0
_REMEDY = "is Kafka running? `tailorbird stack status`"
_IDS_A_RECORD = 5000


class DeadLetterReader:
    """Reads the dead letters of a topology; each call of `read` adds the new ones. Close it at the end.

    Only committed records are read. `read` raises Retriable while Kafka is unavailable; the next call continues."""

    def __init__(self, topology: Topology, dead_letters: DeadLetterList) -> None:
        self._topic, self._dead_letters = dead_letter_topic(topology.name), dead_letters
        self._reader = _reader(topology)
        self._next: dict[Partition, int] = {}

    def __enter__(self) -> DeadLetterReader:
        return self

    def __exit__(self, *_: object) -> None:
        self._reader.close()

    def read(self) -> DeadLetterList:
        """Return all dead letters that are committed by now."""
        starts = {at: self._next.get(at, OFFSET_BEGINNING) for at in self._reader.partitions(self._topic)}
        records = map(_record, self._reader.records(starts))
        # several partitions are ordered by their timestamps only; there is one partition unless an operator added more
        for record in records if len(starts) == 1 else sorted(records, key=lambda one: one.at_ms):
            self._next[self._topic, record.partition] = record.offset + 1
            self._dead_letters.add(record)
        return self._dead_letters


def settle(topology: Topology, dead_letters: Sequence[DeadLetterRow], how: str) -> None:
    """Write records that settle dead letters, and return once Kafka has acknowledged them. `how` is stored as the
    reason.

    Raises Retriable while Kafka is unavailable."""
    servers, failed = topology.log.brokers, []

    def reported(error: KafkaError | None, _: object) -> None:
        if error is not None:
            failed.append(error)

    try:
        producer = Producer({**servers.librdkafka(), "enable.idempotence": True, "log_level": 0})
        for start in range(0, len(dead_letters), _IDS_A_RECORD):
            some = dead_letters[start : start + _IDS_A_RECORD]
            value = resolved_dead_letters({one.id: (one.partition, one.offset) for one in some}, how)
            producer.produce(dead_letter_topic(topology.name), key=KEY, value=value, partition=0, on_delivery=reported)
        if producer.flush(_TIMEOUT) or failed:
            raise KafkaException(failed[0] if failed else KafkaError(KafkaError._TIMED_OUT))
    except KafkaException as error:
        cause: Any = error.args[0]
        raise Retriable(f"Kafka at {servers}: the dead letters are not settled: {cause.str()}", _REMEDY) from error


def records_at(topology: Topology, places: Iterable[tuple[int, int]]) -> dict[tuple[int, int], DeadLetterRecord]:
    """Return the records at the given (partition, offset). Records that retention removed are missing, as is offset
    -1.

    Raises Retriable while Kafka is unavailable."""
    wanted, topic = {place for place in places if place[0] >= 0}, dead_letter_topic(topology.name)
    starts = {(topic, p): min(offset for q, offset in wanted if q == p) for p, _ in wanted}
    with _reader(topology) as reader:
        records = map(_record, reader.records(starts))
        return {place: one for one in records if (place := (one.partition, one.offset)) in wanted}


def newest_schemas(topology: Topology) -> dict[TableId, TableSchema]:
    """Return the newest published schema of each captured table. Raises Retriable while Kafka is unavailable."""
    topic, found = schemas_topic(topology.name), dict[TableId, TableSchema]()
    with KafkaReader(topology.log.brokers, "tailorbird-dead-letters", "the schemas cannot be read") as reader:
        for message in reader.records(dict.fromkeys(reader.partitions(topic), OFFSET_BEGINNING)):
            schema = own_record(topic, message.offset(), message.value(), schema_from_json, message.partition())
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


def _reader(topology: Topology) -> KafkaReader:
    return KafkaReader(
        topology.log.brokers, "tailorbird-dead-letters", "the dead letters cannot be read", answer=_TIMEOUT
    )  # fmt: skip


def _record(message: Message) -> DeadLetterRecord:
    return DeadLetterRecord(
        message.key(), message.value(), message.timestamp()[1], message.partition() or 0, message.offset() or 0
    )
