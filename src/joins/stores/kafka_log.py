"""Read the ends of change topics and single partitions, and write dead letters. Spark itself reads the changes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition

from cdc.model.brokers import Brokers
from cdc.model.dead_letter_end import KEY, settled_table
from cdc.model.errors import Retriable
from cdc.model.naming import dead_letter_topic

_TIMEOUT = 20.0
_POLL = 0.25
_WAIT_LIMIT = 60.0
_RUNNING = "is Kafka running? `tailorbird stack status`"
Waiting = Callable[[str], None]


def end_offsets(
    servers: Brokers, topics: Sequence[str], waiting: Waiting, stopped: Callable[[], bool]
) -> dict[str, dict[int, int]]:
    """Return the current end of each partition.

    Waits until capture has created all topics, and calls `waiting` with the missing ones. Returns {} once `stopped`.
    Raises Retriable while Kafka is unavailable."""
    consumer = consumer_of(servers)
    try:
        while not stopped():
            try:
                known = consumer.list_topics(timeout=_TIMEOUT).topics
            except KafkaException as error:
                waiting(f"Kafka at {servers}: {error.args[0].str()}; {_RUNNING}")
                time.sleep(_POLL)
                continue
            if missing := [topic for topic in topics if topic not in known or not known[topic].partitions]:
                waiting("topic " + ", ".join(missing))
                time.sleep(_POLL)
                continue
            return {
                topic: {
                    partition: consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=_TIMEOUT)[1]
                    for partition in known[topic].partitions
                }
                for topic in topics
            }
        return {}
    except KafkaException as error:
        raise Retriable(f"Kafka at {servers}: {error.args[0].str()}", _RUNNING) from error
    finally:
        consumer.close()


def past(servers: Brokers, topic: str, partition: int, end: int) -> Iterator[tuple[int, bytes | None, bytes | None]]:
    """Yield offset, key and value of a partition's records before offset `end`, in order.

    Raises Retriable while Kafka is unavailable."""
    consumer = consumer_of(servers)
    try:
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING)])
        deadline = time.monotonic() + _WAIT_LIMIT
        while True:
            message = consumer.poll(_POLL)
            if message is None:
                if time.monotonic() > deadline:
                    what = f"{topic}, partition {partition}: Kafka does not return the records before offset {end}"
                    raise Retriable(what, _RUNNING)
                continue
            deadline = time.monotonic() + _WAIT_LIMIT
            error, offset = message.error(), message.offset() or 0
            if error is not None and error.code() != KafkaError._PARTITION_EOF:
                raise Retriable(f"{topic}, partition {partition}: {error.str()}", _RUNNING)
            if offset >= end or error is not None:
                return
            yield offset, message.key(), message.value()
    except KafkaException as error:
        raise Retriable(f"Kafka at {servers}: {error.args[0].str()}", _RUNNING) from error
    finally:
        consumer.close()


def consumer_of(servers: Brokers) -> Consumer:
    return Consumer(servers.reader("tailorbird-join-start"))


def send_dead_letters(servers: Brokers, topic: str, dead_letters: Sequence[tuple[bytes, bytes]]) -> None:
    """Write dead letters and return once Kafka has stored them. At least once, because repeated batches repeat them.

    Raises Retriable while Kafka is unavailable."""
    failed: list[KafkaError] = []
    producer = Producer(
        {
            **servers.librdkafka(),
            "enable.idempotence": True,
            "compression.type": "lz4",
            "partitioner": "murmur2_random",
            "delivery.timeout.ms": round(_TIMEOUT * 1000),
            "log_level": 0,
        }
    )
    try:
        for key, value in dead_letters:
            producer.produce(topic, key=key, value=value, on_delivery=lambda e, _: failed.append(e) if e else None)
            producer.poll(0)
        waiting = producer.flush(_TIMEOUT)
    except (KafkaException, BufferError) as error:
        raise Retriable(f"dead letters: {error}", _RUNNING) from error
    if failed or waiting:
        reason = failed[0].str() if failed else "no answer"
        raise Retriable(f"dead letters: {reason}", _RUNNING)


def resolve_dead_letters(servers: Brokers, topology: str, tables: Sequence[str]) -> None:
    """Settle all dead letters of these tables. A rebuild reads everything again, and refuses invalid records again.

    Does nothing without a dead-letter topic. Raises Retriable if Kafka does not accept the records."""
    topic = dead_letter_topic(topology)
    consumer = consumer_of(servers)
    try:
        known = topic in consumer.list_topics(timeout=_TIMEOUT).topics
    except KafkaException as error:
        raise Retriable(f"Kafka at {servers}: {error.args[0].str()}", _RUNNING) from error
    finally:
        consumer.close()
    if known:
        send_dead_letters(servers, topic, [(KEY, settled_table("join", table, "rebuilt")) for table in tables])
