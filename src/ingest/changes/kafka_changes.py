"""Read change topics from Kafka; implements `feed_interfaces.ChangeTables`.

Reads share a few consumers and leave no state. So a slow reader occupies no resources between its reads.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition

from cdc.model.errors import Fatal, Retriable
from cdc.model.event import Position
from cdc.model.naming import change_topic, history_topic, schemas_topic
from cdc.model.patterns import is_pattern
from cdc.model.schema import TableId
from cdc.process.kafka_foreign import own_record
from cdc.topology.topology import Topology
from ingest.changes.feed_interfaces import SchemaVersions, ahead
from ingest.changes.kafka_feed_positions import PositionRecords
from ingest.changes.kafka_released import RUNNING, TIMEOUT, KafkaReleased, reader_settings
from ingest.changes.merging import ChangeBatch, LogBytes, Offsets, merge
from ingest.changes.positions import BEGINNING, last_before
from ingest.changes.versions import SchemaRecords
from ingest.log.kafka_topics import source_topics

_BATCH = 1_000  # maximum records per read
_BYTES = 1 << 20  # approximate maximum bytes per read
_NEWEST = 64  # records per partition that `newest` returns
_CONSUMERS = 4


class KafkaChanges:
    """Changes of some sources of a topology (none given: all). Call `begin` first, then `follow` repeatedly, in one
    thread."""

    def __init__(self, topology: Topology, sources: Sequence[str] = ()) -> None:
        self._topology, self._routing = topology, topology.routing
        self._sources = tuple(sources or topology.sources)
        self._released = KafkaReleased(topology, self._sources)
        self._schemas = _SchemaTopics(topology)
        self._idle: queue.SimpleQueue[Consumer] = queue.SimpleQueue()
        self._all: list[Consumer] = []
        self._lock = threading.Lock()

    def begin(self) -> None:
        """Read how far every capture has committed. Raises Retriable if nothing was ever captured."""
        self._released.begin()
        with self._translated():
            self._schemas.read()

    def follow(self, seconds: float) -> bool:
        """Wait up to `seconds` for new commits. Returns True if there were any."""
        return self._released.follow(seconds)

    def tables(self) -> tuple[TableId, ...]:
        """Return the tables with committed changes. Implements `ChangeTables`."""
        ends = self._released.ends
        return tuple(
            table
            for table in sorted(self._schemas.records.tables())
            if table.source in self._sources
            and not is_pattern(table.database)  # its tables have the changes
            and self._routing.topic_of(table) in ends
        )

    def begins(self, table: TableId) -> Offsets:
        """Return the first retained offset of each partition of a table's topic. Implements `ChangeTables`."""
        topic, released = self._routing.topic_of(table), self.released(table)
        if not any(released.values()):  # the topic may not exist before its first record
            return dict.fromkeys(released, 0)
        with self._translated(), self._consumer() as consumer:
            parts = [TopicPartition(topic, number) for number in released]
            return {p.partition: int(consumer.get_watermark_offsets(p, timeout=TIMEOUT)[0]) for p in parts}

    def released(self, table: TableId) -> Offsets:
        """Return, for each partition of a table's topic, the end offset in the source's newest checkpoint."""
        return self._released.ends.get(self._routing.topic_of(table), {})

    def read(self, table: TableId, starts: Offsets, ends: Offsets) -> ChangeBatch:
        """Implements `ChangeTables.read`."""
        topic = self._routing.topic_of(table)
        with self._translated(), self._consumer() as consumer:
            found = _read(consumer, topic, starts, ends, self._of(table))
        with self._translated():
            self._schemas.read()  # read schemas after the rows, so that those of the same commits are included
        try:
            return merge(*found)
        except Fatal as error:
            raise Fatal(f"topic {topic}: {error.message}", error.hint) from error

    def _of(self, table: TableId) -> Callable[[bytes | None], bool]:
        """Return the function that says whether a record with a key, in the table's topic, is one of the table."""
        name, routing = change_topic(self._topology.name, table), self._routing
        return lambda key: routing.own_key(name, key or b"") is not None

    def before(self, table: TableId, reached: Callable[[Position], bool]) -> Offsets | None:
        """Implements `ChangeTables.before`, by some dozens of short reads of `…positions`."""
        topic = self._routing.topic_of(table)
        partition = source_topics(self._topology, self._topology.sources[table.source]).positions_partition
        with self._translated(), self._consumer() as consumer:
            marks = PositionRecords(consumer, self._topology, table.source, partition)
            whole_since = time.time() - self._topology.log.min_compaction_lag
            found = last_before(marks, reached, int(1000 * whole_since))
        if found == BEGINNING:
            return self.begins(table)
        return None if found is None else {p: found.ends.get(topic, {}).get(p, 0) for p in self.released(table)}

    def newest(self, table: TableId, ends: Offsets) -> ChangeBatch:
        """Return some dozens of the last changes before `ends` in each partition. Implements `ChangeTables`."""
        begins = self.begins(table)
        batch = self.read(table, {p: max(begins[p], end - _NEWEST) for p, end in ends.items()}, ends)
        changes = list(batch.changes)
        while ahead(batch.next, ends):  # one read returns only a part of many or large records
            batch = self.read(table, batch.next, ends)
            changes += batch.changes
        return ChangeBatch(tuple(changes), batch.next)

    def schemas(self, table: TableId) -> SchemaVersions:
        """Return the table's schemas, with those of all changes read so far. Implements `ChangeTables`."""
        return self._schemas.of(table)

    def close(self) -> None:
        """Close all consumers. No read may be running."""
        self._released.close()
        self._schemas.close()
        for consumer in self._all:
            consumer.close()

    @contextmanager
    def _consumer(self) -> Iterator[Consumer]:
        with self._lock:
            if self._idle.empty() and len(self._all) < _CONSUMERS:
                self._all.append(Consumer(reader_settings(self._topology)))
                self._idle.put(self._all[-1])
        consumer = self._idle.get()
        try:
            yield consumer
        finally:
            self._idle.put(consumer)

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except KafkaException as error:
            raise Retriable(f"Kafka at {self._topology.log.brokers}: {error.args[0].str()}", RUNNING) from error


_Found = tuple[dict[int, list[LogBytes]], dict[int, int], dict[int, int], set[int]]


def _read(
    consumer: Consumer, topic: str, starts: Offsets, ends: Offsets, own: Callable[[bytes | None], bool]
) -> _Found:
    """Return the arguments of `merge`: at least one record of each partition, unless nothing is left to read there.

    Only records whose key `own` accepts are returned, because a topic may contain those of several tables.
    """
    nexts = {p: starts.get(p, 0) for p in ends}
    whole = {p for p, end in ends.items() if nexts[p] >= end}
    found: dict[int, list[LogBytes]] = {p: [] for p in ends}
    begun, size, count = dict(nexts), 0, 0
    wanted = [TopicPartition(topic, p, at) for p, at in nexts.items() if p not in whole]
    if not wanted:
        return found, begun, nexts, whole
    consumer.assign(wanted)
    deadline = time.monotonic() + TIMEOUT
    try:
        while any(p not in whole and (not found[p] or (count < _BATCH and size < _BYTES)) for p in ends):
            for message in consumer.consume(500, 0.1):
                deadline = time.monotonic() + TIMEOUT
                error, p, offset = message.error(), message.partition() or 0, message.offset() or 0
                if error is not None:
                    if error.code() == KafkaError._PARTITION_EOF:
                        if offset >= ends[p]:
                            nexts[p], whole = ends[p], whole | {p}
                    elif not error.retriable():
                        raise KafkaException(error)
                    continue
                if p in whole:
                    continue
                if offset < ends[p]:
                    nexts[p] = offset + 1
                    if own(message.key()):
                        value = message.value()
                        found[p].append(LogBytes(offset, value, message.timestamp()[1]))
                        size, count = size + len(value or b""), count + 1
                if offset + 1 >= ends[p]:
                    nexts[p], whole = ends[p], whole | {p}
            # read_committed consumers wait for the commit marker, which may not have reached every partition
            if time.monotonic() > deadline:
                raise Retriable(f"Kafka does not return records of {topic}", RUNNING)
    finally:
        consumer.unassign()
    return found, begun, nexts, whole


class _SchemaTopics:
    """Reads the topics `…schemas` and `…history` up to their present ends at each call. Thread-safe."""

    def __init__(self, topology: Topology) -> None:
        self.records = SchemaRecords(topology)
        self._topics = (schemas_topic(topology.name), history_topic(topology.name))
        self._consumer = Consumer(reader_settings(topology))
        # the end including open transactions: all commits known so far are before it
        self._marks = Consumer(reader_settings(topology, isolation_level="read_uncommitted"))
        self._next: dict[str, int] = {}
        self._lock = threading.Lock()

    def read(self) -> None:
        with self._lock:
            if not self._next:
                self._consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING) for topic in self._topics])
            ends = {t: self._marks.get_watermark_offsets(TopicPartition(t, 0), timeout=TIMEOUT) for t in self._topics}
            left = {topic: high for topic, (_, high) in ends.items() if self._next.get(topic, 0) < high}
            deadline = time.monotonic() + TIMEOUT
            while left:
                for message in self._consumer.consume(500, 0.1):
                    self._take(message, left)
                if time.monotonic() > deadline:
                    raise Retriable(f"Kafka does not return {', '.join(left)}: a transaction may be open", RUNNING)

    def _take(self, message: object, left: dict[str, int]) -> None:
        topic, offset, error = message.topic(), message.offset(), message.error()  # type: ignore[attr-defined]  # untyped
        if error is not None:
            if error.code() != KafkaError._PARTITION_EOF:
                if not error.retriable():
                    raise KafkaException(error)
                return
        else:
            key, value = message.key(), message.value()  # type: ignore[attr-defined]  # untyped
            if topic == self._topics[0]:
                own_record(topic, offset, value, lambda _: self.records.schema(value))
            elif value is None:
                self.records.history(key, None)
            else:
                own_record(topic, offset, value, lambda _: self.records.history(key, value))
            offset += 1
        self._next[topic] = offset
        if topic in left and offset >= left[topic]:
            del left[topic]

    def of(self, table: TableId) -> SchemaVersions:
        with self._lock:
            return self.records.of(table)

    def close(self) -> None:
        self._consumer.close()
        self._marks.close()
