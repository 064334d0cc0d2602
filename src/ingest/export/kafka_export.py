"""Export to a topic of any Kafka cluster, committing the next offsets in the same transaction."""

from __future__ import annotations

import time

import orjson
from confluent_kafka import OFFSET_BEGINNING, KafkaError, KafkaException, Producer

from cdc.model.errors import Fatal, Retriable
from cdc.model.naming import exported_topic
from cdc.model.schema import TableId
from cdc.process.kafka_reader import KafkaReader
from cdc.topology.topology import Log
from ingest.changes.merging import Offsets
from ingest.export.cuts import ExportCut
from ingest.export.encoding import ExportFormat, RecordEncoder
from ingest.log.kafka_topics import MAX_MESSAGE, TIMEOUT, client_settings, make_topic

_FENCED = {KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH}


class TopicExport:
    """Writes the cuts of one table to a topic; implements `ExportSink`. Exactly once for read_committed consumers.

    The topic is `<prefix>.<database>.<table>`; offsets are in `<prefix>.export-positions`, which is compacted. Every
    method raises Retriable while the cluster is unavailable, and Fatal if another export has taken over.
    """

    def __init__(
        self, log: Log, prefix: str, table: TableId, form: ExportFormat, records: RecordEncoder, topology: str
    ) -> None:
        self._log, self._topology = log, topology
        self.topic = exported_topic(prefix, table)
        self._positions = f"{prefix}.export-positions"
        self._key = f"{table}:{form}".encode()
        self._records = records
        self._failure: KafkaError | None = None
        make_topic(log, self.topic, log.partitions, {"max.message.bytes": str(MAX_MESSAGE)})
        make_topic(log, self._positions, 1, {"cleanup.policy": "compact"})
        self._producer = Producer(
            client_settings(
                log.brokers, transactional_id=f"{prefix}.export.{table}.{form}", acks="all", enable_idempotence=True,
                compression_type="lz4", partitioner="murmur2_random", message_max_bytes=MAX_MESSAGE,
            )
        )  # fmt: skip

    def begin(self) -> Offsets | None:
        """Fence earlier writers, and return the offsets after the last cut that they wrote; None if there is none."""
        try:
            self._producer.init_transactions(TIMEOUT)
            return self._last()
        except KafkaException as error:
            raise self._translated(error) from error

    def _last(self) -> Offsets | None:
        at, found = (self._positions, 0), None
        what = f"{self._positions} cannot be read to its end; is another export running there?"
        # the end for committed records is before the open transactions of exports of other tables
        whole = {"isolation_level": "read_uncommitted"}
        with KafkaReader(self._log.brokers, "tailorbird-export", what, answer=TIMEOUT, **whole) as reader:
            end = reader.bounds(at)[1]
        with KafkaReader(self._log.brokers, "tailorbird-export", what, answer=TIMEOUT) as reader:
            for message in reader.records({at: OFFSET_BEGINNING}, {at: end}):
                if message.key() == self._key:
                    found = {int(p): int(o) for p, o in orjson.loads(message.value() or b"{}").items()}
        return found

    def write(self, cut: ExportCut) -> None:
        """Commit a cut's records and the next offsets in one transaction. Raises Retriable while Kafka is
        unavailable."""
        try:
            self._producer.begin_transaction()
            for key, value in self._records(cut, self._topology):
                self._produce(self.topic, key, value)
            self._produce(self._positions, self._key, orjson.dumps({str(p): o for p, o in cut.next.items()}))
            if self._producer.flush(TIMEOUT):
                raise Retriable(f"Kafka at {self._log.brokers} did not take the records within {TIMEOUT:.0f} s")
            if self._failure is not None:
                raise KafkaException(self._failure)
            self._producer.commit_transaction(TIMEOUT)
        except KafkaException as error:
            raise self._translated(error) from error

    def _produce(self, topic: str, key: bytes | None, value: bytes | None) -> None:
        deadline = time.monotonic() + TIMEOUT
        while True:
            try:
                self._producer.produce(topic, value, key, on_delivery=self._delivered)
                self._producer.poll(0)
                return
            except BufferError:
                self._producer.poll(0.05)
                if time.monotonic() > deadline:
                    raise Retriable(f"Kafka at {self._log.brokers} takes no records") from None

    def _delivered(self, error: KafkaError | None, message: object) -> None:
        self._failure = self._failure or error

    def close(self) -> None:
        """Discard records that are not committed, and close the connections."""
        self._producer.purge()
        self._producer.flush(0)
        self._producer.close()

    def _translated(self, error: KafkaException) -> Retriable | Fatal:
        cause = error.args[0]
        if cause.code() in _FENCED:
            return Fatal(f"another export writes {self.topic}", "stop the other export")
        return Retriable(f"Kafka at {self._log.brokers}: {cause.str()}")
