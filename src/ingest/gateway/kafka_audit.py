"""Who did what, in the topic `<topology>.audit`: kept for a quarter, not compacted; implements `interfaces.Audit`."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import orjson
import structlog
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka import KafkaError as Code

from cdc.model.errors import Retriable
from cdc.model.naming import audit_topic
from cdc.topology.topology import Log
from ingest.log.kafka_topics import TIMEOUT, client_settings, make_topic

_CONFIG = {"cleanup.policy": "delete", "retention.ms": str(92 * 24 * 3600 * 1000)}
_SURE = 10.0  # seconds

log = structlog.get_logger()


class KafkaAudit:
    """The audit of one topology."""

    def __init__(self, settings: Log, topology: str) -> None:
        self._topic, self._brokers = audit_topic(topology), settings.brokers
        make_topic(settings, self._topic, 1, _CONFIG)
        self._producer = Producer(
            client_settings(
                self._brokers, acks="all", enable_idempotence=True, linger_ms=5, queue_buffering_max_kbytes=16 * 1024
            )
        )

    def line(self, said: Mapping[str, Any]) -> None:
        """See `interfaces.Audit`; one that Kafka does not take is in the gateway's log alone."""

        def delivered(error: Any, message: Any) -> None:
            if error is not None:
                log.warning("not kept in the audit", why=error.str(), line=dict(said))

        self._produce(said, delivered)
        self._producer.poll(0)

    def sure(self, said: Mapping[str, Any]) -> None:
        """See `interfaces.Audit`."""
        reported = list[Any]()
        self._produce(said, lambda error, message: reported.append(error))
        deadline = time.monotonic() + _SURE
        while not reported and time.monotonic() < deadline:
            self._producer.poll(0.05)
        if not reported or reported[0] is not None:
            why = reported[0].str() if reported else "no answer"
            raise Retriable(f"Kafka at {self._brokers}: no line of audit can be kept: {why}")

    def newest(self, count: int) -> Sequence[Mapping[str, Any]]:
        """See `interfaces.Audit`."""
        consumer = Consumer(
            client_settings(
                self._brokers, group_id=self._topic, enable_auto_commit=False, enable_partition_eof=True,
                auto_offset_reset="earliest",
            )
        )  # fmt: skip
        try:
            low, end = consumer.get_watermark_offsets(TopicPartition(self._topic, 0), timeout=TIMEOUT)
            consumer.assign([TopicPartition(self._topic, 0, max(low, end - count))])
            return self._until(consumer, end) if end > low else []
        except KafkaException as error:
            raise Retriable(f"Kafka at {self._brokers}: the audit can not be read: {error.args[0].str()}") from error
        finally:
            consumer.close()

    def close(self) -> None:
        """Send what is left."""
        self._producer.flush(5.0)

    def _until(self, consumer: Any, end: int) -> list[Mapping[str, Any]]:
        found = list[Mapping[str, Any]]()
        deadline = time.monotonic() + TIMEOUT
        while time.monotonic() < deadline:
            message = consumer.poll(0.5)
            if message is None:
                continue
            if message.error() is not None:
                if message.error().code() == Code._PARTITION_EOF:
                    return found
                raise KafkaException(message.error())
            found.append(orjson.loads(message.value()))
            if message.offset() + 1 >= end:
                return found
        raise Retriable(f"Kafka at {self._brokers}: the audit can not be read")

    def _produce(self, said: Mapping[str, Any], delivered: Any) -> None:
        value = orjson.dumps({"at_ms": int(time.time() * 1000), **said})
        try:
            self._producer.produce(self._topic, value, None, partition=0, on_delivery=delivered)
        except (BufferError, KafkaException) as error:
            raise Retriable(f"Kafka at {self._brokers}: no line of audit can be kept: {error}") from error
