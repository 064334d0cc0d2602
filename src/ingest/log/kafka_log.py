"""Change log in Kafka, with one transactional producer per source; implements `ChangeLog`.

Delivery is exactly once for read_committed consumers. Records and their checkpoint are one Kafka transaction, and
initTransactions fences earlier writers before the checkpoint is read. A KafkaLog serves one session.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import orjson
from confluent_kafka import OFFSET_BEGINNING, Consumer, IsolationLevel, KafkaException, Producer, TopicPartition
from confluent_kafka import KafkaError as Code
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]  # missing in __all__ only

from cdc.model import naming
from cdc.model.errors import Fatal, Retriable, TailorbirdError
from cdc.model.history import Record as HistoryRecord
from cdc.model.schema import TableId, TableSchema, schema_from_json
from cdc.topology.topology import Source, Topology
from ingest.log.kafka_search import KafkaSearch
from ingest.log.kafka_topics import MAX_MESSAGE, TIMEOUT, SourceTopics, client_settings, make_change_topic
from ingest.records.capture_interfaces import EVERY_PARTITION, Checkpoint, Record, Recovered
from ingest.records.findings import Search
from ingest.records.records import checkpoint_value, history_start, read_checkpoint

_FENCED = {Code._FENCED, Code.PRODUCER_FENCED, Code.INVALID_PRODUCER_EPOCH, Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED}
# Milliseconds that a transaction may stay open: the brokers' default. Gateways use less (`kafka_sources`).
TRANSACTION_TIMEOUT_MS = 900_000
_POLL_EVERY = 200  # number of appended records after which delivery reports are collected


class KafkaLog:
    """Change log of one source, for one session."""

    def __init__(
        self, topology: Topology, source: Source, topics: SourceTopics, timeout_ms: int = TRANSACTION_TIMEOUT_MS
    ) -> None:
        self._topics, self._topology = topics, topology
        self._source = source.name
        self._id = naming.transactional_id(topology.name, source.name)
        self._brokers = topology.log.brokers
        self._ends: dict[str, dict[int, int]] = {
            name: dict.fromkeys(range(topics.partitions), 0) for name in topics.changes
        }
        self._committed: dict[str, dict[int, int]] = {}  # value of `_ends` at the last commit of this session
        self._ensured = set(topics.changes)
        self._searches: list[Search] = []
        self._open, self._began, self._longest = False, 0.0, timeout_ms / 1000
        self._unpolled = 0
        self._failure: Any = None
        # Offset in `…history` at which the whole history begins: that of the last `restate`.
        self._history_start = 0
        self._restating = False
        self._producer = Producer(
            client_settings(
                self._brokers,
                transactional_id=self._id,
                transaction_timeout_ms=timeout_ms,
                acks="all",
                enable_idempotence=True,
                compression_type="lz4",
                partitioner="murmur2_random",
                linger_ms=20,  # does not delay a commit, whose flush sends at once
                message_max_bytes=MAX_MESSAGE,
                queue_buffering_max_messages=100_000,
                queue_buffering_max_kbytes=32 * 1024,
            )
        )

    def recover(self) -> Recovered:
        """Implements `ChangeLog.recover`. Fences earlier writers first, then reads back what they committed."""
        with self._translated("begin"):
            self._producer.init_transactions(TIMEOUT)
        return self.peek()

    def peek(self) -> Recovered:
        """Return what is committed now, like `recover`, but without fencing a running capture."""
        with self._translated("read back the position"):
            stored = self._last_position()
        return self._recovered(stored)

    def _recovered(self, stored: bytes | None) -> Recovered:
        self._history_start = history_start(stored)
        with self._translated("read back the schemas"):
            schemas = self._schemas()
        history = self.history()
        if stored is None:
            return Recovered(schemas=schemas, history=history)
        checkpoint, ends = read_checkpoint(stored)
        behind = {topic for topic in self._topics.changes if topic not in ends}
        for topic, offsets in ends.items():
            if topic in self._ends or self._topics.open_ended:
                self._ends.setdefault(topic, {}).update(offsets)
        with self._translated("compare the topics' ends with the position"):
            lost = self._lost()
        for topic in lost:
            self._ends[topic] = dict.fromkeys(range(self._topics.partitions), 0)
        return Recovered(checkpoint=checkpoint, schemas=schemas, history=history, behind=frozenset(behind | lost))

    def _lost(self) -> set[str]:
        """Return the topics that end before the offsets in the checkpoint, because they were deleted and created
        again."""
        admin = AdminClient(client_settings(self._brokers))
        newest = OffsetSpec.latest()  # type: ignore[no-untyped-call]  # typed nowhere
        there = admin.list_topics(timeout=TIMEOUT).topics
        lost = {topic for topic in self._ends if topic not in there}
        wanted = [TopicPartition(t, p) for t, ends in self._ends.items() if t not in lost for p in ends]
        found = admin.list_offsets(dict.fromkeys(wanted, newest), request_timeout=TIMEOUT) if wanted else {}
        return lost | {t.topic for t, end in found.items() if end.result().offset < self._ends[t.topic][t.partition]}

    def ensure_topic(self, name: str) -> None:
        """Create the change topic `name` if it does not exist. Topics of listed tables exist from the start."""
        if name not in self._ensured:
            make_change_topic(self._topology.log, name)
            self._ensured.add(name)
            self._ends.setdefault(name, dict.fromkeys(range(self._topics.partitions), 0))

    def append(self, record: Record) -> None:
        """Implements `ChangeLog.append`. Waits while 100,000 records or 32 MiB are in flight."""
        self.extend((record,))

    def extend(self, records: Iterable[Record]) -> None:
        """Implements `ChangeLog.extend`. Waits while 100,000 records or 32 MiB are in flight."""
        produce, delivered = self._producer.produce, self._delivered
        try:
            self._begin()
            for record in records:
                self._unpolled += 1
                topic, key, value, partition = record
                if partition is None:
                    try:
                        produce(topic, value, key, on_delivery=delivered)
                    except BufferError:  # the queue is full: wait until the brokers have taken some records
                        self._patiently(record, -1)
                else:
                    every = partition == EVERY_PARTITION
                    for one in range(self._topics.partitions) if every else (partition,):
                        self._patiently(record, one)
            if self._unpolled >= _POLL_EVERY:
                self._unpolled = 0
                self._producer.poll(0)
        except (KafkaException, SystemError) as exception:
            raise self._translation(exception, "append") from exception

    def undelivered(self, seconds: float = 0.0) -> int:
        """Return how many records Kafka has not acknowledged, after waiting at most `seconds` for that."""
        with self._translated("append"):
            self._producer.poll(seconds)
        return len(self._producer)

    def commit(self, checkpoint: Checkpoint) -> None:
        """Implements `ChangeLog.commit`. The checkpoint's record contains the end offset of each change topic, too."""
        with self._translated("commit"):
            self._begin()
            if self._producer.flush(TIMEOUT):
                raise Retriable(f"Kafka at {self._brokers} did not take the records within {TIMEOUT:.0f} s")
            if self._failure is not None:
                raise KafkaException(self._failure)
            self._producer.produce(
                self._topics.positions,
                checkpoint_value(checkpoint, self._source, self._ends, self._history_start),
                self._id.encode(),
                partition=self._topics.positions_partition,
            )
            self._producer.commit_transaction(TIMEOUT)
            self._open, self._committed = False, {topic: dict(ends) for topic, ends in self._ends.items()}

    def abort(self) -> None:
        """Discard what was appended since the last commit. Implements `ChangeLog`."""
        if not self._open:
            return
        self._open = False
        try:
            self._producer.abort_transaction(TIMEOUT)
        except (KafkaException, SystemError):  # the next session's initTransactions aborts it
            self._drop()

    def close(self) -> None:
        """Discard uncommitted records and drop the connections. Safe to call at any time."""
        for search in self._searches:
            search.given_up = True
        self.abort()
        self._drop()

    def _drop(self) -> None:
        """Forget the records that are in flight."""
        with suppress(KafkaException, SystemError):
            self._producer.purge()
            self._producer.flush(0)

    def _begin(self) -> None:
        if not self._open:
            self._producer.begin_transaction()
            self._open, self._began = True, time.monotonic()

    def _patiently(self, record: Record, partition: int) -> None:
        """Produce a record to a partition (-1: by the key's hash), waiting while the client's queue is full."""
        deadline = time.monotonic() + TIMEOUT
        while True:
            try:
                self._producer.produce(
                    record.topic, record.value, record.key, partition=partition, on_delivery=self._delivered
                )
                return
            except BufferError:
                self._producer.poll(0.05)
                if time.monotonic() > deadline:
                    raise Retriable(f"Kafka at {self._brokers} takes no records") from None

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None:
            self._failure = self._failure or error
            return
        if self._restating and message.topic() == self._topics.history:
            self._history_start, self._restating = message.offset(), False
        ends = self._ends.get(message.topic())
        if ends is not None:
            partition, end = message.partition(), message.offset() + 1
            if end > ends.get(partition, 0):
                ends[partition] = end

    def _last_position(self) -> bytes | None:
        """Return the source's newest committed position record, from its own partition or else from all others."""
        own = self._topics.positions_partition
        with self._reader() as consumer:
            metadata = consumer.list_topics(self._topics.positions, timeout=TIMEOUT)
            others = [p for p in metadata.topics[self._topics.positions].partitions if p != own]
            for partition in (own, *others):
                found = self._last_of(consumer, partition)
                if found is not None:
                    return found
        return None

    def _last_of(self, consumer: Any, partition: int) -> bytes | None:
        """Return the source's newest record in a partition of `…positions`, searched backwards in growing steps."""
        wait_for_others = partition == self._topics.positions_partition
        end = self._stable_end(self._topics.positions, partition, wait=wait_for_others)
        low, _ = consumer.get_watermark_offsets(TopicPartition(self._topics.positions, partition), timeout=TIMEOUT)
        step, high = 64, end
        while high > low:
            start = max(low, high - step)
            found: bytes | None = None
            for key, value in self._between(consumer, self._topics.positions, partition, start, end):
                if key == self._id.encode():
                    found = value
            if found is not None:
                return found
            step, high = step * 8, start
        return None

    def _schemas(self) -> Mapping[TableId, TableSchema]:
        """Return the newest published schema of each table of the source."""
        found: dict[TableId, TableSchema] = {}
        end = self._stable_end(self._topics.schemas, 0, wait=True)
        with self._reader() as consumer:
            for _, value in self._between(consumer, self._topics.schemas, 0, OFFSET_BEGINNING, end):
                if value is not None:
                    schema = schema_from_json(orjson.loads(value))
                    if schema.table_id.source == self._source:
                        found[schema.table_id] = schema
        return found

    def restate(self, records: Iterable[Record]) -> None:
        """Implements `ChangeLog.restate`. The next checkpoint records where these records begin."""
        with self._translated("append"):
            if self._producer.flush(TIMEOUT):
                raise Retriable(f"Kafka at {self._brokers} did not take the records within {TIMEOUT:.0f} s")
            self._restating = True
        self.extend(records)

    def history(self) -> tuple[HistoryRecord, ...]:
        """Return the committed schema history of this source, in order, since the last `restate`."""
        found: list[HistoryRecord] = []
        with self._translated("read back the history"), self._reader() as consumer:
            end = self._stable_end(self._topics.history, 0, wait=True)
            start = self._history_start or OFFSET_BEGINNING
            for key, value in self._between(consumer, self._topics.history, 0, start, end):
                name = (key or b"[]").decode()
                if orjson.loads(name)[1:2] == [self._source]:
                    found.append((name, None if value is None else orjson.loads(value)))
        return tuple(found)

    def kept(self) -> list[Mapping[str, Any]]:
        """Return all committed records of this source in the quarantine topic, in order. Implements `ChangeLog`."""
        found: list[Mapping[str, Any]] = []
        with self._translated("read the quarantine"), self._reader() as consumer:
            end = self._stable_end(self._topics.quarantine, 0, wait=True)
            for _, value in self._between(consumer, self._topics.quarantine, 0, OFFSET_BEGINNING, end):
                dead_letter = orjson.loads(value or b"{}")
                if dead_letter.get("source") == self._source:
                    found.append(dead_letter)
        return found

    def search(self, search: Search) -> None:
        """Implements `ChangeLog.search`, with a separate thread."""
        if search.topic not in self._ensured and search.topic not in self._ends:
            search.done = True
            return
        self._searches = [*(one for one in self._searches if not one.done), search]
        floor = dict.fromkeys(range(self._topics.partitions), 0) | self._committed.get(search.topic, {})
        KafkaSearch(client_settings(self._brokers), self._id, search, floor).start()

    def _stable_end(self, topic: str, partition: int, *, wait: bool) -> int:
        """Return the end of a partition once no transaction is open in it. Raises Retriable if that takes too long.

        A read_committed consumer sees no record, of any source, after the begin of an open transaction.
        """
        admin = AdminClient(client_settings(self._brokers))
        newest = OffsetSpec.latest()  # type: ignore[no-untyped-call]  # typed nowhere
        deadline = time.monotonic() + TIMEOUT
        while True:
            at = TopicPartition(topic, partition)
            stable, end = (
                admin.list_offsets({at: newest}, isolation_level=level, request_timeout=TIMEOUT)[at].result().offset
                for level in (IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED)
            )
            if stable == end or not wait:
                return int(stable)
            if time.monotonic() > deadline:
                raise Retriable(
                    f"a transaction of another capture has been open in {topic} for more than {TIMEOUT:.0f} s",
                    "restart that source's capture: it ends the transaction that its predecessor left open",
                )
            time.sleep(0.02)

    def _between(
        self, consumer: Any, topic: str, partition: int, start: int, end: int
    ) -> Iterator[tuple[bytes | None, bytes | None]]:
        """Yield (key, value) of the committed records from offset `start` up to, but not including, `end`."""
        if end == 0:
            return
        consumer.assign([TopicPartition(topic, partition, start)])
        deadline = time.monotonic() + TIMEOUT
        while True:
            message = consumer.poll(1.0)
            if message is None:
                if time.monotonic() > deadline:
                    raise Retriable(f"Kafka at {self._brokers} does not answer")
            elif message.error() is None:
                yield message.key(), message.value()
                deadline = time.monotonic() + TIMEOUT
            elif message.error().code() == Code._PARTITION_EOF:
                if message.offset() >= end:
                    return
            elif not message.error().retriable():
                raise KafkaException(message.error())

    @contextmanager
    def _reader(self) -> Iterator[Any]:
        consumer = Consumer(
            client_settings(
                self._brokers, group_id=self._id, enable_auto_commit=False, isolation_level="read_committed",
                enable_partition_eof=True, fetch_wait_max_ms=10,
            )
        )  # fmt: skip
        try:
            yield consumer
        finally:
            consumer.close()

    @contextmanager
    def _translated(self, doing: str) -> Iterator[None]:
        try:
            yield
        except (KafkaException, SystemError) as exception:
            raise self._translation(exception, doing) from exception

    def _translation(self, exception: KafkaException | SystemError, doing: str) -> TailorbirdError:
        error = exception.args[0] if isinstance(exception, KafkaException) else self._lost_error(exception)
        if error is None:
            return Fatal(f"Kafka at {self._brokers}: {doing}: {exception}")
        if error.code() in _FENCED:
            if self._open and time.monotonic() - self._began > self._longest:  # the error of `recover` names the cause
                return Retriable(f"Kafka aborted a transaction that was open for more than {self._longest:.0f} s")
            return Fatal(
                f"another capture of source {self._source} has taken over",
                "run one capture per source; the newest one continues",
            )
        return Retriable(f"Kafka at {self._brokers}: {doing}: {error.str()}")

    def _lost_error(self, exception: SystemError) -> Any:
        """Return the error that the client lost when an error during callbacks became a SystemError without cause.

        The delivery report of a record has it, or the producer, which answers every later call with a fatal error.
        """
        if isinstance(exception.__cause__, KafkaException):
            return exception.__cause__.args[0]
        try:
            self._producer.abort_transaction(TIMEOUT)
        except KafkaException as fatal:
            return fatal.args[0]
        except SystemError as again:
            return again.__cause__.args[0] if isinstance(again.__cause__, KafkaException) else self._failure
        return self._failure
