"""Create the topics that a capture writes to, with timestamps by the broker; read and count their records.

Both sides are timed by the same clock: the broker's, when it appended a record (LogAppendTime).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # missing in __all__ only
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from benchmarks.capture.report import TopicCount
from cdc.model.errors import TailorbirdError

PARTITIONS = 2


def make_topic(brokers: str, topic: str) -> None:
    """Create a topic whose records get their timestamps from the broker."""
    admin = AdminClient({"bootstrap.servers": brokers, "log_level": 0})
    config = {"message.timestamp.type": "LogAppendTime", "max.message.bytes": str(16 * 1024 * 1024)}
    admin.create_topics([NewTopic(topic, PARTITIONS, 1, config=config)])[topic].result(30)


def timestamp_by_broker(brokers: str, topic: str) -> None:
    """Have the broker set the timestamps of records in an existing topic."""
    entry = ConfigEntry("message.timestamp.type", "LogAppendTime", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": brokers, "log_level": 0})  # its futures end with it
    admin.incremental_alter_configs([resource])[resource].result(30)


def wait_for_records(brokers: str, topic: str, wanted: int, alive: Callable[[], None], seconds: float) -> None:
    """Wait until a topic has at least `wanted` committed offsets; `alive` raises if the writer has ended."""
    consumer = _consumer(brokers)
    deadline = time.monotonic() + seconds
    try:
        while _ends(consumer, topic) < wanted:
            alive()
            if time.monotonic() > deadline:
                raise TailorbirdError(f"timeout: {topic} has {_ends(consumer, topic):,} of {wanted:,} records")
            time.sleep(0.1)
    finally:
        consumer.close()


def _ends(consumer: Any, topic: str) -> int:
    try:
        marks = [consumer.get_watermark_offsets(TopicPartition(topic, p), timeout=10) for p in range(PARTITIONS)]
    except KafkaException:  # the topic does not exist yet
        return 0
    return sum(high for _, high in marks)


def count(brokers: str, topic: str) -> TopicCount:
    """Read a topic as a read_committed consumer; return the changes by kind and the broker's time of each."""
    consumer, moments = _consumer(brokers), list[int]()
    kinds = {"c": 0, "u": 0, "d": 0, "r": 0}
    size = 0
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
    ended = 0
    try:
        while ended < PARTITIONS:
            for message in consumer.consume(10_000, timeout=10):
                if message.error() is not None:
                    ended += 1
                    continue
                value = message.value()
                if value is None:
                    continue
                at = value.rindex(b'"op":"') + 6
                kinds[value[at : at + 1].decode()] += 1
                size += len(value)
                moments.append(message.timestamp()[1])
    finally:
        consumer.close()
    return TopicCount(kinds=kinds, moments=tuple(sorted(moments)), size=size)


def _consumer(brokers: str) -> Any:
    settings: dict[str, Any] = {
        "bootstrap.servers": brokers,
        "group.id": "bench-capture",
        "isolation.level": "read_committed",
        "enable.partition.eof": True,
        "enable.auto.commit": False,
    }
    return Consumer(settings)
