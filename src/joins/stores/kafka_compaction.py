"""Query Kafka for the state of the topics that a join reads, as input for `joins.stores.compaction`."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._resource import ResourceType

from cdc.model.brokers import Brokers
from cdc.model.errors import Retriable, UsageError
from cdc.process.kafka_reader import topic_ids
from joins.runtime.cuts import Offsets
from joins.stores.compaction import (
    Now,
    PartitionNow,
    Reading,
    compacted,
    lag_ms,
    lost,
    settled_since,
    suspects,
    thinned,
    too_old,
    unread_since,
)

_TIMEOUT = 20.0
_POLL = 0.1  # seconds; `consume` always waits this long unless that many records are there
_RUNNING = "is Kafka running? `tailorbird stack status`"
_RECORDS = 10_000
Ends = dict[str, dict[int, int]]


class LogWatch:
    """Checks the topics of one join. `lag` is the topology's compaction lag (ms), `remedy` the advice in its errors.

    Raises Retriable while Kafka is unavailable."""

    def __init__(self, servers: Brokers, topics: Sequence[str], *, lag: int, remedy: str) -> None:
        self.servers, self.topics, self.lag, self.remedy = servers, tuple(topics), lag, remedy

    def beginning(self, ends: Offsets, now_ms: int, stopped: Callable[[], bool]) -> tuple[Ends, Ends, dict[str, str]]:
        """Return, for a new run: the compaction-safe offsets, the numbers of records before them, and the topics'
        ids.

        `ends` are the current ends of the log. The records are counted by reading them. After `stopped` the counts
        are incomplete."""
        lags, topics = self._lags(), self._ids()
        since = {topic: settled_since(lags[topic], self.lag, now_ms) for topic in self.topics}
        settled = {topic: {p: each.young for p, each in found.items()} for topic, found in self._now(since).items()}
        # records after the requested ends do not belong to what the run begins with
        settled = {
            topic: {p: min(offset, ends[topic].get(p, 0)) for p, offset in found.items()}
            for topic, found in settled.items()
        }
        return settled, self._counted(compacted(settled, lags), stopped), topics

    def check(self, reading: Reading, now_ms: int) -> None:
        """Raise UsageError, with the remedy, if the join must not continue."""
        lags = self._lags()
        now = self._now({topic: unread_since(lags[topic], now_ms) for topic in self.topics})
        reason = lost(reading, now, self._ids())
        for topic, partition, unread in () if reason else suspects(reading, now):
            lag, first = lags[topic], self._first(topic, partition, unread)
            if lag is not None and first is not None and first[1] < unread_since(lag, now_ms):
                reason = too_old(topic, partition, first[0], age_ms=now_ms - first[1], lag=lag)
                break
        if reason:
            raise UsageError(reason, self.remedy)

    def thinned(self, settled: Offsets, counts: Offsets, stopped: Callable[[], bool]) -> dict[str, int]:
        """Return by topic how many records before the offsets `settled` have disappeared since they were counted."""
        zone = {topic: {p: settled[topic][p] for p in partitions} for topic, partitions in counts.items()}
        return thinned(counts, self._counted(zone, stopped))

    def _lags(self) -> dict[str, int | None]:
        """Return each topic's compaction lag (ms). It is the topology's setting if the broker denies access to the
        topic's."""
        with self._answers(), AdminClient({**self.servers.librdkafka(), "log_level": 0}) as admin:
            wanted = [ConfigResource(ResourceType.TOPIC, topic) for topic in self.topics]
            found: dict[str, int | None] = {}
            for resource, answer in admin.describe_configs(wanted, request_timeout=_TIMEOUT).items():
                try:
                    settings = {name: entry.value for name, entry in answer.result(_TIMEOUT).items()}
                except KafkaException as error:
                    if error.args[0].code() not in (
                        KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED,
                    ):  # fmt: skip
                        raise
                    settings = {}
                found[resource.name] = lag_ms(settings, self.lag)
            return found

    def _ids(self) -> dict[str, str]:
        """Return the ids of the existing topics. A recreated topic has another id."""
        return topic_ids(self.servers, self.topics, timeout=_TIMEOUT)

    def _now(self, since: Mapping[str, int]) -> Now:
        """Return the state of every partition. `since` gives by topic the time (ms) from which records are recent."""
        with self._answers(), self._consumer() as consumer:
            known = consumer.list_topics(timeout=_TIMEOUT).topics
            ends: dict[tuple[str, int], tuple[int, int]] = {}
            for topic in self.topics:
                for partition in known[topic].partitions if topic in known else ():
                    at = TopicPartition(topic, partition)
                    ends[topic, partition] = consumer.get_watermark_offsets(at, timeout=_TIMEOUT)
            wanted = [TopicPartition(topic, partition, since[topic]) for topic, partition in ends]
            found: dict[str, dict[int, PartitionNow]] = {}
            for at in consumer.offsets_for_times(wanted, timeout=_TIMEOUT) if wanted else ():
                low, end = ends[at.topic, at.partition]
                young = at.offset if 0 <= at.offset <= end else end
                found.setdefault(at.topic, {})[at.partition] = PartitionNow(low=low, end=end, young=young)
            return found

    def _first(self, topic: str, partition: int, offset: int) -> tuple[int, int] | None:
        """Return offset and time (ms) of the first record at or after an offset. None if there is none."""
        with self._answers(), self._consumer() as consumer:
            consumer.assign([TopicPartition(topic, partition, offset)])
            message = consumer.poll(_TIMEOUT)
            if message is None:
                raise Retriable(f"{topic}, partition {partition}: Kafka does not return offset {offset}", _RUNNING)
            error = message.error()
            if error is not None and error.code() == KafkaError._PARTITION_EOF:
                return None
            if error is not None:
                raise KafkaException(error)
            return message.offset() or 0, message.timestamp()[1]

    def _counted(self, zone: Offsets, stopped: Callable[[], bool]) -> Ends:
        """Count the records before the offsets, by partition."""
        counts = {topic: dict.fromkeys(partitions, 0) for topic, partitions in zone.items()}
        open_ = {(topic, partition) for topic, partitions in zone.items() for partition in partitions}
        with self._answers(), self._consumer() as consumer:
            if open_:
                consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for topic, partition in open_])
            deadline = time.monotonic() + _TIMEOUT
            while open_ and not stopped():
                messages = consumer.consume(_RECORDS, timeout=_POLL)
                if messages:
                    deadline = time.monotonic() + _TIMEOUT
                elif time.monotonic() > deadline:
                    raise Retriable(f"Kafka at {self.servers} does not return the records of {min(open_)[0]}", _RUNNING)
                for message in messages:
                    topic, partition, offset = message.topic() or "", message.partition() or 0, message.offset() or 0
                    error = message.error()
                    if error is not None and error.code() != KafkaError._PARTITION_EOF:
                        raise KafkaException(error)
                    if (topic, partition) not in open_:
                        continue
                    if error is None and offset < zone[topic][partition]:
                        counts[topic][partition] += 1
                    else:
                        open_.discard((topic, partition))
                        consumer.incremental_unassign([TopicPartition(topic, partition)])
        return counts

    @contextlib.contextmanager
    def _consumer(self) -> Iterator[Consumer]:
        consumer = Consumer(self.servers.reader("tailorbird-join-watch", fetch_wait_max_ms=50))
        try:
            yield consumer
        finally:
            consumer.close()

    @contextlib.contextmanager
    def _answers(self) -> Iterator[None]:
        try:
            yield
        except KafkaException as error:
            raise Retriable(f"Kafka at {self.servers}: {error.args[0].str()}", _RUNNING) from error
