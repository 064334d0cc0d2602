"""The fleet's topic in Kafka, which one thread reads from the beginning; implements `StateTopic`."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import structlog
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka import KafkaError as Code
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]  # missing in __all__ only

from cdc.model.errors import Retriable
from cdc.model.naming import fleet_topic
from cdc.process.kafka_foreign import FOREIGN
from cdc.topology.topology import Log
from ingest.fleet.state import FleetState, StateRecord, folded
from ingest.log.kafka_topics import MAX_MESSAGE, TIMEOUT, client_settings, make_topic

_BATCH = 1000  # records
_QUEUE = 2 * MAX_MESSAGE // 1024  # maximum KiB that are queued while Kafka is unavailable
# compacted every hour, because a gateway reads the whole topic when it starts
_CONFIG = {
    "cleanup.policy": "compact",
    "segment.ms": "3600000",
    "min.cleanable.dirty.ratio": "0.1",
    "max.message.bytes": str(MAX_MESSAGE),
}

# errors that a restarted broker returns to a client with old metadata
_STALE = {Code.FENCED_LEADER_EPOCH, Code.UNKNOWN_LEADER_EPOCH}

log = structlog.get_logger()


class KafkaState:
    """The fleet's topic of one topology. The reading thread calls `changed` after it has read records."""

    changed: Callable[[], None] | None = None

    def __init__(self, settings: Log, topology: str) -> None:
        self._topic, self._brokers = fleet_topic(topology), settings.brokers
        make_topic(settings, self._topic, 1, _CONFIG)
        self._state, self._next = FleetState(), 0
        self._read, self._closed = threading.Condition(), threading.Event()
        self._at = TopicPartition(self._topic, 0)
        self._admin = AdminClient(client_settings(self._brokers))
        self._producer = Producer(
            client_settings(
                self._brokers, acks="all", enable_idempotence=True, compression_type="lz4", linger_ms=5,
                message_max_bytes=MAX_MESSAGE, queue_buffering_max_kbytes=_QUEUE,
                message_timeout_ms=int(TIMEOUT * 1000),
            )
        )  # fmt: skip
        self._thread = threading.Thread(target=self._follow, name="fleet", daemon=True)
        self._thread.start()
        try:
            self.fresh()
        except Retriable:
            self.close()
            raise

    @property
    def state(self) -> FleetState:
        """Return the state after the records read so far. Implements `StateTopic`."""
        return self._state

    def fresh(self) -> FleetState:
        """Wait until all records that the topic contains now are read, and return the state.

        Raises Retriable while Kafka is unavailable."""
        newest = OffsetSpec.latest()  # type: ignore[no-untyped-call]  # typed nowhere
        deadline = time.monotonic() + TIMEOUT
        while True:
            admin = self._admin
            asked = admin.list_offsets({self._at: newest}, request_timeout=TIMEOUT)[self._at]
            try:
                return self._reached(int(asked.result(TIMEOUT).offset))
            except (KafkaException, TimeoutError) as error:
                stale = isinstance(error, KafkaException) and error.args[0].code() in _STALE
                if stale and self._admin is admin:
                    # a new client, because an admin client caches the leader for 15 minutes
                    self._admin = AdminClient(client_settings(self._brokers))
                # a new topic, or a broker that stops: the partition has a leader soon
                passing = stale or (isinstance(error, KafkaException) and error.args[0].retriable())
                if not passing or time.monotonic() > deadline:
                    raise Retriable(f"Kafka at {self._brokers}: the fleet's state: {error}") from error
            time.sleep(0.05)

    def write(self, *records: StateRecord) -> FleetState:
        """Write records, wait until they are read back, and return the state. Implements `StateTopic`."""
        offsets, failed = list[int](), list[Any]()

        def delivered(error: Any, message: Any) -> None:
            if error is not None:
                failed.append(error)
            else:
                offsets.append(message.offset())

        for key, value in records:
            self._produce(key, value, delivered)
        deadline = time.monotonic() + TIMEOUT
        while len(offsets) + len(failed) < len(records) and time.monotonic() < deadline:
            self._producer.poll(0.05)
        if failed or len(offsets) < len(records):
            why = failed[0].str() if failed else "no answer"
            raise Retriable(f"Kafka at {self._brokers}: the fleet's state was not written: {why}")
        return self._reached(max(offsets) + 1)

    def send(self, record: StateRecord) -> None:
        """Write a record asynchronously. If Kafka does not accept it, that is only logged. Implements `StateTopic`."""

        def delivered(error: Any, message: Any) -> None:
            if error is not None:
                log.warning("not written", topic=self._topic, key=record[0].decode(), why=error.str())

        self._produce(*record, delivered)
        self._producer.poll(0)

    def close(self) -> None:
        """Send the queued records, and close the connections."""
        self._closed.set()
        self._producer.flush(5.0)
        self._producer.close()
        self._thread.join(5.0)

    def _produce(self, key: bytes, value: bytes | None, delivered: Callable[[Any, Any], None]) -> None:
        try:
            self._producer.produce(self._topic, value, key, partition=0, on_delivery=delivered)
        except (BufferError, KafkaException) as error:
            raise Retriable(f"Kafka at {self._brokers}: the fleet's state was not written: {error}") from error

    def _reached(self, offset: int) -> FleetState:
        with self._read:
            if not self._read.wait_for(lambda: self._next >= offset, TIMEOUT):
                raise Retriable(f"Kafka at {self._brokers}: the fleet's state cannot be read")
            return self._state

    def _follow(self) -> None:
        consumer = Consumer(
            client_settings(
                self._brokers, group_id="tailorbird-fleet", enable_auto_commit=False, enable_partition_eof=True,
                auto_offset_reset="earliest", fetch_wait_max_ms=100,
            )
        )  # fmt: skip
        try:
            consumer.assign([TopicPartition(self._topic, 0, OFFSET_BEGINNING)])
            while not self._closed.is_set():
                try:
                    self._take(consumer.consume(_BATCH, 0.05))
                except KafkaException as error:
                    log.warning("the fleet's state cannot be read", topic=self._topic, why=str(error))
                    self._closed.wait(1.0)
        finally:
            consumer.close()

    def _take(self, messages: list[Any]) -> None:
        records, reached, failed = list[StateRecord](), 0, None
        for message in messages:
            error = message.error()
            if error is None:
                records.append((message.key() or b"", message.value()))
                reached = message.offset() + 1
            elif error.code() == Code._PARTITION_EOF:
                reached = message.offset()
            elif not error.retriable():
                failed = error
        if messages:
            self._fold(records, reached)
        if failed is not None:  # raise it only after the records of the same batch, which are not read again
            raise KafkaException(failed)

    def _fold(self, records: list[StateRecord], reached: int) -> None:
        state = folded(self._state, records)
        if state.strange != self._state.strange:
            log.warning("unreadable records in the fleet's topic", topic=self._topic, count=state.strange)
            FOREIGN.labels(self._topic).inc(state.strange - self._state.strange)
        with self._read:
            self._state, self._next = state, max(self._next, reached)
            self._read.notify_all()
        if records and self.changed is not None:
            self.changed()
