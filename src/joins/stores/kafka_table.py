"""Store the rows of a joined table in an upsert topic, `<topology>.<table>`. The key is the row key, the value the
row.

A deleted row is a tombstone. Flink's `upsert-kafka` and Kafka Connect's sinks can read the topic. Delivery is at
least once: a repeated batch repeats its records, and the newest record of a key is the row's state. The topic is
compacted."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import orjson
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from cdc.model.brokers import Brokers
from cdc.model.errors import Retriable, UsageError
from cdc.process.kafka_admin import WantedTopic, create_topics
from cdc.stored.layout import Layout
from joins.runtime.chunks import stale_keys
from joins.runtime.records import ROW_GONE, ROW_PUT, Message, RefusedRecord, TruncationPoint, record_of, values_of_text

_TIMEOUT = 30.0
_RUN = "run"
_RUNNING = "is Kafka running? `tailorbird stack status`"


class UpsertTopic:
    """The topic of a joined table, for use by the driver."""

    def __init__(self, servers: Brokers, topic: str, *, partitions: int, replication: int) -> None:
        self.servers, self.topic = servers, topic
        self._partitions, self._replication = partitions, replication

    def exists(self) -> bool:
        """Return whether Kafka has the topic."""
        try:
            with AdminClient({**self.servers.librdkafka(), "log_level": 0}) as admin:
                return self.topic in admin.list_topics(timeout=_TIMEOUT).topics
        except KafkaException as error:
            raise Retriable(f"topic {self.topic}: {error.args[0].str()}", _RUNNING) from error

    def check(self) -> None:
        """Raise UsageError if the topic exists and contains records of another producer."""
        if self.exists():
            check_own(self.topic, self._firsts())

    def create(self) -> None:
        """Create the topic."""
        settings = {"cleanup.policy": "compact", "delete.retention.ms": str(7 * 24 * 3600 * 1000)}
        wanted = WantedTopic(
            name=self.topic, partitions=self._partitions, replication=self._replication, config=settings
        )
        for refused in create_topics(self.servers, [wanted]).values():
            raise Retriable(f"topic {self.topic}: {refused.text}", _RUNNING)

    def sweep(self, run: str) -> int:
        """Write a tombstone for every row that only earlier runs than `run` have written. Return their number."""
        swept = 0
        for stale in stale_keys(self._records, run):
            produce(self.servers, self.topic, run, [(key, None) for key in stale])
            swept += len(stale)
        return swept

    def _records(self) -> Iterator[tuple[bytes, str | None]]:
        """Yield the key of every record with the run that wrote it. The run is None for tombstones and foreign
        records."""
        for message in self._messages():
            yield message.key() or b"", written_by(message.value(), _headers(message))

    def _firsts(self) -> Iterator[list[tuple[str, bytes]]]:
        """Yield the headers of the first record of each partition that has one."""
        seen = set[int]()
        for message in self._messages(seen):
            if message.partition() not in seen:
                seen.add(message.partition())
                yield _headers(message)

    def _messages(self, enough: Collection[int] = ()) -> Iterator[Any]:
        """Yield the records of all partitions from the beginning. Partitions in `enough`, which may grow, are
        skipped."""
        consumer = Consumer(self.servers.reader("tailorbird-join-sweep"))
        try:
            partitions = consumer.list_topics(self.topic, timeout=_TIMEOUT).topics[self.topic].partitions
            consumer.assign([TopicPartition(self.topic, partition, 0) for partition in partitions])
            open_ = set(partitions)
            while open_ - set(enough):
                message = consumer.poll(_TIMEOUT)
                if message is None:
                    raise Retriable(f"topic {self.topic}: no answer", _RUNNING)
                error = message.error()
                if error is None:
                    yield message
                elif error.code() == KafkaError._PARTITION_EOF:
                    open_.discard(message.partition())
                else:
                    raise Retriable(f"topic {self.topic}: {error.str()}", _RUNNING)
        except KafkaException as error:
            raise Retriable(f"topic {self.topic}: {error.args[0].str()}", _RUNNING) from error
        finally:
            consumer.close()


def check_own(topic: str, firsts: Iterable[Sequence[tuple[str, bytes]]]) -> None:
    """Raise UsageError if the first records of a topic's partitions are by another producer, as their headers show.

    The rows would otherwise be mixed. A topic without records is accepted, because an administrator may have created
    it."""
    for headers in firsts:
        if written_by(b"", headers) is None:
            raise UsageError(
                f"topic {topic} holds records of another producer",
                "choose another table name, or delete the topic if it is unused",
            )


def written_by(value: bytes | None, headers: Sequence[tuple[str, bytes]]) -> str | None:
    """Return the run that wrote a record's row; None for a tombstone and for records of other producers."""
    run = dict(headers).get(_RUN)
    return None if value is None or run is None else run.decode(errors="replace")


def _headers(message: Any) -> list[tuple[str, bytes]]:
    return message.headers() or []


def upserts(
    messages: Iterable[Message], layout: Layout, indexes: Sequence[int]
) -> tuple[list[tuple[bytes, bytes | None]], list[RefusedRecord], list[TruncationPoint]]:
    """Convert a partition's messages of one batch to records, dead letters and truncation points.

    If a row has a put and a delete, the put wins."""
    records: dict[bytes, bytes | None] = {}
    refused: list[RefusedRecord] = []
    truncation_points: list[TruncationPoint] = []
    names = [column.name for column in layout.columns]
    for message in messages:
        if message.op not in (ROW_PUT, ROW_GONE):
            found = record_of(message, indexes)
            if isinstance(found, RefusedRecord):
                refused.append(found)
            elif isinstance(found, TruncationPoint):
                truncation_points.append(found)
            continue
        row_key = values_of_text(message.k[1:])
        key = orjson.dumps(dict(zip(layout.row_key, row_key, strict=True)))
        if message.op == ROW_GONE:
            if layout.may_hold(row_key):  # otherwise an inner join on the NULL hides the row: it was never written
                records.setdefault(key, None)
        else:
            put: Any = record_of(message, indexes)
            records[key] = orjson.dumps(dict(zip(names, put.values, strict=True)))
    return list(records.items()), refused, truncation_points


_producers: dict[Brokers, Producer] = {}  # of this Python worker, kept between batches


def produce(servers: Brokers, topic: str, run: str, records: Sequence[tuple[bytes, bytes | None]]) -> None:
    """Write records, and return once Kafka has stored all. Raises Retriable otherwise; all may then be sent again."""
    producer = _producers.get(servers) or _producers.setdefault(servers, _producer(servers))
    failed: list[KafkaError] = []
    headers: Mapping[str, bytes] = {_RUN: run.encode()}
    try:
        for key, value in records:
            while True:
                try:
                    producer.produce(
                        topic, key=key, value=value, headers=dict(headers),
                        on_delivery=lambda error, _: failed.append(error) if error else None,
                    )  # fmt: skip
                    break
                except BufferError:
                    producer.poll(1)
            producer.poll(0)
        waiting = producer.flush(_TIMEOUT)
    except KafkaException as error:
        raise Retriable(f"topic {topic}: {error.args[0].str()}", _RUNNING) from error
    if failed or waiting:
        _producers.pop(servers, None)
        raise Retriable(f"topic {topic}: {failed[0].str() if failed else 'no answer'}", _RUNNING)


def _producer(servers: Brokers) -> Producer:
    return Producer(
        {
            **servers.librdkafka(),
            "enable.idempotence": True,
            "compression.type": "lz4",
            "partitioner": "murmur2_random",
            "delivery.timeout.ms": round(_TIMEOUT * 1000),
            "log_level": 0,
        }
    )
