"""Audit log in the topic `<topology>.audit`, which keeps lines for 92 days; implements `Audit`."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

import orjson
import structlog
from confluent_kafka import KafkaException, Producer

from cdc.model.errors import Retriable
from cdc.model.naming import audit_topic
from cdc.process.kafka_foreign import tolerated
from cdc.process.kafka_reader import KafkaReader
from cdc.topology.topology import Log
from ingest.fleet.audit_chain import ChainEnd, chained
from ingest.log.kafka_topics import TIMEOUT, client_settings, make_topic

_CONFIG = {"cleanup.policy": "delete", "retention.ms": str(92 * 24 * 3600 * 1000)}
_SURE = 10.0  # seconds

log = structlog.get_logger()


class KafkaAudit:
    """The audit log of one topology."""

    def __init__(self, settings: Log, topology: str) -> None:
        self._topic, self._brokers = audit_topic(topology), settings.brokers
        self._end, self._lock = ChainEnd(secrets.token_hex(8)), threading.Lock()
        make_topic(settings, self._topic, 1, _CONFIG)
        self._producer = Producer(
            client_settings(
                self._brokers, acks="all", enable_idempotence=True, linger_ms=5, queue_buffering_max_kbytes=16 * 1024
            )
        )

    def line(self, entry: Mapping[str, Any]) -> None:
        """Implements `Audit.line`. A line that Kafka does not accept is only in the gateway's log."""

        def delivered(error: Any, message: Any) -> None:
            if error is not None:
                self._begin_chain()
                log.warning("cannot write to the audit log", why=error.str(), line=dict(entry))

        self._produce(entry, delivered)
        self._producer.poll(0)

    def sure(self, entry: Mapping[str, Any]) -> None:
        """Write a line and wait until Kafka has stored it. Implements `Audit`."""
        errors = list[Any]()
        self._produce(entry, lambda error, message: errors.append(error))
        deadline = time.monotonic() + _SURE
        while not errors and time.monotonic() < deadline:
            self._producer.poll(0.05)
        if not errors or errors[0] is not None:
            self._begin_chain()
            why = errors[0].str() if errors else "no answer"
            raise Retriable(f"Kafka at {self._brokers}: cannot write to the audit log: {why}")

    def newest(self, count: int) -> Sequence[Mapping[str, Any]]:
        """Return the last `count` lines, oldest first. Implements `Audit`."""
        at, found = (self._topic, 0), list[Mapping[str, Any]]()
        with KafkaReader(
            self._brokers, "tailorbird-audit", "the audit log cannot be read", answer=TIMEOUT
        ) as reader:  # fmt: skip
            low, end = reader.bounds(at)
            for message in reader.records({at: max(low, end - count)}, {at: end}):
                line = tolerated(self._topic, message.offset(), message.value(), _line)
                if line is not None:
                    found.append(line)
        return found

    def close(self) -> None:
        """Send the queued lines."""
        self._producer.flush(5.0)

    def _begin_chain(self) -> None:
        """Begin a new chain: a line that Kafka did not store must not look like a removed one."""
        with self._lock:
            self._end = ChainEnd(secrets.token_hex(8))

    def _produce(self, entry: Mapping[str, Any], delivered: Any) -> None:
        line = {"at_ms": int(time.time() * 1000), **entry}
        with self._lock:  # lines are chained in the order in which they are sent
            end = self._end.after(line)
            try:
                value = orjson.dumps(chained(line, end))
                self._producer.produce(self._topic, value, None, partition=0, on_delivery=delivered)
            except (BufferError, KafkaException) as error:
                raise Retriable(f"Kafka at {self._brokers}: cannot write to the audit log: {error}") from error
            self._end = end


def _line(content: Any) -> Mapping[str, Any]:
    """Return a line of the audit. Raises KeyError or TypeError if it is not one."""
    if not isinstance(content["at_ms"], int) or not isinstance(content["what"], str):
        raise TypeError("a field of a wrong type")
    found: Mapping[str, Any] = content
    return found
