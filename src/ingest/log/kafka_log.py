"""Change log in Kafka, with one transactional producer per source; implements `ChangeLog`.

Delivery is exactly once for read_committed consumers. Records and their checkpoint are one Kafka transaction, and
initTransactions fences earlier writers before the checkpoint is read. A KafkaLog serves one session.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from typing import Any

from confluent_kafka import KafkaError as Code
from confluent_kafka import KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]  # missing in __all__ only

from cdc.model import naming
from cdc.model.errors import Fatal, Retriable, TailorbirdError
from cdc.model.history import Record as HistoryRecord
from cdc.process.kafka_grants import denied
from cdc.topology.topology import Source, Topology
from ingest.log.kafka_committed import CommittedRecords
from ingest.log.kafka_search import KafkaSearch
from ingest.log.kafka_topics import (
    AT_ONCE,
    MAX_MESSAGE,
    TIMEOUT,
    SourceTopics,
    client_settings,
    is_named,
    partitions_added,
    shared_topics,
)
from ingest.log.kafka_waiting import WaitingRecords
from ingest.records.capture_interfaces import EVERY_PARTITION, Checkpoint, Record, Recovered
from ingest.records.findings import Search
from ingest.records.position_writer import PositionWriter
from ingest.records.records import checkpoint_from, history_start

_FENCED = {Code._FENCED, Code.PRODUCER_FENCED, Code.INVALID_PRODUCER_EPOCH}
# Milliseconds that a transaction may stay open: the brokers' default. Gateways use less (`kafka_sources`).
TRANSACTION_TIMEOUT_MS = 900_000
_PIECE = 1000  # records that are in memory at once, besides those in flight
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
        self._committed_records = CommittedRecords(topology, source, topics)
        self._routing = topology.routing
        # the next offsets of change topics; {} for a table whose topic contains other tables, too
        self._ends: dict[str, dict[int, int]] = {}
        self._added = set[str]()  # since the last commit
        for name in topics.changes:
            self._add(name)
        self._positions, self._placed = PositionWriter(self._source, self._id.encode()), -1
        # `_ends` of the topics to which this session has committed; those to which it has written since
        self._committed, self._written = dict[str, dict[int, int]](), set[str]()
        self._waiting = WaitingRecords(topology.log, {*topics.made, *shared_topics(topology, topics)})
        self._made = self._waiting.made
        self._named = is_named(topology)
        self._searches, self._unpolled = list[Search](), 0
        self._open, self._began, self._longest = False, 0.0, timeout_ms / 1000
        self._failure: Any = None
        # Offset in `…history` at which the whole history begins: that of the last `restate`.
        self._history_start, self._restating = 0, False
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
            stored = self._committed_records.last_position()
        return self._recovered(stored)

    def _recovered(self, stored: Mapping[str, Any] | None) -> Recovered:
        self._history_start = history_start(stored)
        with self._translated("read back the schemas"):
            schemas = self._committed_records.schemas()
        history = self.history()
        if stored is None:
            return Recovered(schemas=schemas, history=history)
        checkpoint, ends = checkpoint_from(stored)
        appeared = {name for name in ends if self._topics.may_contain(self._routing.topic(name))}
        known = {*self._topics.changes, *appeared}
        behind = {name for name in known if self._moved(name, ends)}
        for topic, offsets in ends.items():
            if topic in self._ends or topic in appeared:
                self._add(topic).update({} if self._routing.shares(topic) else offsets)
        with self._translated("compare the topics' ends with the position"):
            lost = self._lost()
        for topic, offsets in ends.items():
            if topic not in lost and any(offsets.values()) and len(offsets) < self._topics.partitions:
                raise partitions_added(topic, len(offsets))
        for topic in lost:
            self._ends[topic] = dict.fromkeys(range(self._topics.partitions), 0)
        behind |= {name for name in (*known, *ends) if self._routing.topic(name) in lost}
        return Recovered(checkpoint=checkpoint, schemas=schemas, history=history, behind=frozenset(behind))

    def _add(self, name: str) -> dict[int, int]:
        """Add a change topic, and the topic in Kafka that contains its records, whose next offsets are returned."""
        topic = self._routing.topic(name)
        self._added |= {name, topic}
        if topic != name:
            self._ends[name] = {}
        return self._ends.setdefault(topic, dict.fromkeys(range(self._topics.partitions), 0))

    def _moved(self, name: str, ends: Mapping[str, Mapping[int, int]]) -> bool:
        """Return whether the topic in Kafka of a table lacks its records: it was not captured, or had another topic."""
        topic = self._routing.topic(name)
        return name not in ends or topic not in ends or (topic == name and not ends[name])

    def _lost(self) -> set[str]:
        """Return the topics that end before the offsets in the checkpoint, because they were deleted and created
        again."""
        newest = OffsetSpec.latest()  # type: ignore[no-untyped-call]  # typed nowhere
        with AdminClient(client_settings(self._brokers)) as admin:
            there = admin.list_topics(timeout=TIMEOUT).topics
            self._made.update(topic for topic in self._ends if topic in there)
            lost = {topic for topic, ends in self._ends.items() if topic not in there and any(ends.values())}
            wanted = [
                TopicPartition(t, p) for t, ends in self._ends.items() if t in there for p, end in ends.items() if end
            ]
            asked = admin.list_offsets(dict.fromkeys(wanted, newest), request_timeout=TIMEOUT) if wanted else {}
            ends_now = {t: end.result().offset for t, end in asked.items()}
        return lost | {t.topic for t, end in ends_now.items() if end < self._ends[t.topic][t.partition]}

    def ensure_topic(self, name: str) -> None:
        """Implements `OpenLog.ensure_topic`.

        With the next commit, the topic of one of the first tables exists, or of a table that a query names. That of any
        other table is created when it has a record.
        """
        topic = self._routing.topic(name)
        if name not in self._ends:
            self._add(name)
        if topic not in self._made and (len(self._ends) <= AT_ONCE or self._named(name)):
            self._waiting.ask(topic)

    def _finish_waiting(self) -> None:
        """Wait until all topics exist, and produce the records that wait for them."""
        if waiting := self._waiting.finish():
            self._produce(waiting)

    def append(self, record: Record) -> None:
        """Implements `ChangeLog.append`. Waits while 100,000 records or 32 MiB are in flight."""
        self.extend((record,))

    def extend(self, records: Iterable[Record]) -> None:
        """Implements `ChangeLog.extend`. Waits while 100,000 records or 32 MiB are in flight."""
        left = map(self._routed, records) if self._routing.shares_any else iter(records)
        while some := list(islice(left, _PIECE)):
            if not self._made.issuperset([record.topic for record in some]):
                some = self._waiting.ready(some)
                if self._waiting.full:
                    self._finish_waiting()
            self._produce(some)

    def _routed(self, record: Record) -> Record:
        """Return the record as it is written to Kafka."""
        topic = self._routing.topic(record.topic)
        if topic == record.topic:
            return record
        return Record(topic, self._routing.stored_key(record.topic, record.key), record.value, record.partition)

    def _produce(self, records: Sequence[Record]) -> None:
        produce, delivered = self._producer.produce, self._delivered
        try:
            self._begin()
            self._unpolled += len(records)
            for record in records:
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
        if seconds:
            self._finish_waiting()
        with self._translated("append"):
            self._producer.poll(seconds)
        return len(self._producer) + len(self._waiting)

    def commit(self, checkpoint: Checkpoint) -> None:
        """Implements `ChangeLog.commit`. The checkpoint's record contains the end offset of each change topic, too."""
        self._finish_waiting()
        with self._translated("commit"):
            self._begin()
            if self._producer.flush(TIMEOUT):
                raise Retriable(f"Kafka at {self._brokers} did not take the records within {TIMEOUT:.0f} s")
            if self._failure is not None:
                raise KafkaException(self._failure)
            for topic in self._written:  # Kafka's client uses partitions that were added as soon as it sees them
                if len(self._ends[topic]) > self._topics.partitions:
                    raise partitions_added(topic, self._topics.partitions)
            changed = self._written | self._added
            key, value, whole = self._positions.record(checkpoint, self._ends, changed, self._history_start)
            self._placed = -1
            self._producer.produce(
                self._topics.positions, value, key, partition=self._topics.positions_partition,
                on_delivery=self._delivered,
            )  # fmt: skip
            self._producer.commit_transaction(TIMEOUT)
            self._open = False
            self._positions.committed(checkpoint, self._placed if whole else None)
            self._added.clear()
            self._committed |= {topic: dict(self._ends[topic]) for topic in self._written}
            self._written.clear()

    def abort(self) -> None:
        """Discard what was appended since the last commit. Implements `ChangeLog`."""
        self._waiting.discard()
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
        self._waiting.close()
        self.abort()
        self._drop()
        # a session's objects refer to each other, so without this the client's threads and files would remain until
        # Python collects garbage: a capture whose database is away for long would run out of them
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # it could not abort; `abort` has done what is possible
            self._producer.close()

    def _drop(self) -> None:
        """Forget the records that are in flight."""
        with suppress(KafkaException, SystemError, RuntimeError):  # the last one if it is closed already
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
        topic = message.topic()  # creates a text
        if self._restating and topic == self._topics.history:
            self._history_start, self._restating = message.offset(), False
        ends = self._ends.get(topic)
        if ends is not None:
            partition, end = message.partition(), message.offset() + 1
            if end > ends.get(partition, 0):
                ends[partition] = end
                self._written.add(topic)
        elif topic == self._topics.positions:
            self._placed = message.offset()

    def restate(self, records: Iterable[Record]) -> None:
        """Implements `ChangeLog.restate`. The next checkpoint records where these records begin."""
        with self._translated("append"):
            if self._producer.flush(TIMEOUT):
                raise Retriable(f"Kafka at {self._brokers} did not take the records within {TIMEOUT:.0f} s")
            self._restating = True
        self.extend(records)

    def history(self) -> tuple[HistoryRecord, ...]:
        """Return the committed schema history of this source, in order, since the last `restate`."""
        with self._translated("read back the history"):
            return self._committed_records.history(self._history_start)

    def kept(self) -> list[Mapping[str, Any]]:
        """Return all committed records of this source in the quarantine topic, in order. Implements `ChangeLog`."""
        with self._translated("read the quarantine"):
            return self._committed_records.quarantined()

    def search(self, search: Search) -> None:
        """Implements `ChangeLog.search`, with a separate thread."""
        topic = self._routing.topic(search.topic)
        if topic not in self._made:
            search.done = True
            return
        self._searches = [*(one for one in self._searches if not one.done), search]
        floor = dict.fromkeys(range(self._topics.partitions), 0) | self._committed.get(topic, {})
        KafkaSearch(self._brokers, self._routing, search, floor).start()

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
        if error.code() == Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
            return denied(self._topology, [f"WRITE on transactional-id {self._id}"])
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
