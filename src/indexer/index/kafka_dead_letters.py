"""Write rows that cannot be indexed to the topology's dead-letter topic."""

from __future__ import annotations

import base64
import threading
from collections.abc import Mapping, Sequence

import orjson
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from cdc.model.brokers import Brokers
from cdc.model.dead_letter_end import KEY, TOPIC, settled_row
from cdc.model.errors import Retriable
from cdc.model.naming import dead_letter_topic
from cdc.process.kafka_admin import WantedTopic, create_topics
from indexer.index.kafka_open import OpenRows
from indexer.index.processor import DeadLetter

_TIMEOUT = 20.0
_LONGEST = 700_000


class KafkaDeadLetters:
    """The dead-letter topic of one index, connected at the first dead letter. Threads may share it.

    Delivery is at least once: a batch that HBase sends again writes its dead letters again. The key is
    `indexer/<index>/<row, hex>`. The value is JSON with `format, stage, index, row (hex), version, reason, cells
    {qualifier: base64}, omitted {qualifier: bytes}`. If a row exceeds the maximum size of a Kafka record, its
    longest cells are omitted. A reader then finds them in HBase by the row key."""

    def __init__(self, brokers: Brokers, *, topology: str, index: str, replication_factor: int) -> None:
        self._servers, self._index = brokers, index
        self._topic, self._replication = dead_letter_topic(topology), replication_factor
        self._producer: Producer | None = None
        self._lock = threading.Lock()
        self._open = OpenRows(brokers, self._topic, index)

    def accepted(self, rows: Mapping[bytes, int]) -> None:
        """Mark the dead-letter records of rows as settled: Solr has now accepted the row.

        `rows` gives the accepted version by row key. Only records of this version or an older one are settled. If no
        record is open, only the clock is read. While Kafka is unavailable, the records stay open."""
        with self._lock:
            self._open.look()
            known = self._open.rows
            found = [row for row in known if row in rows and known[row][0] <= rows[row]] if known else []
            if not found:
                return
            try:
                producer = self._connected()
                for row in found:
                    value = settled_row("indexer", self._index, row.hex(), "a later change", upto=known[row][1])
                    producer.produce(self._topic, key=KEY, value=value)
                if not producer.flush(_TIMEOUT):
                    for row in found:
                        del known[row]
            except (KafkaException, BufferError, TimeoutError):
                self._producer = None

    def put(self, dead_letters: Sequence[DeadLetter]) -> None:
        """Return once Kafka has acknowledged the dead letters on all replicas. Raises Retriable if it does not
        answer."""
        failed: list[KafkaError] = []

        def delivered(error: KafkaError | None, _: object) -> None:
            if error is not None:
                failed.append(error)

        with self._lock:
            try:
                producer = self._connected()
                for dead_letter in dead_letters:
                    producer.produce(
                        self._topic, key=self._key(dead_letter), value=self._value(dead_letter), callback=delivered
                    )
                    producer.poll(0)
                waiting = producer.flush(_TIMEOUT)
            except (KafkaException, BufferError, TimeoutError) as error:
                raise self._unavailable(str(error) or "no answer") from error
            if failed or waiting:
                self._producer = None
                raise self._unavailable(failed[0] if failed else "no answer")

    def _connected(self) -> Producer:
        if self._producer is None:
            # librdkafka would write to stderr
            common = {**self._servers.librdkafka(), "log_level": 0}
            with AdminClient(common) as admin:
                there = self._topic in admin.list_topics(timeout=_TIMEOUT).topics
            if not there:
                topic = WantedTopic(name=self._topic, replication=self._replication, config=TOPIC)
                for refused in create_topics(self._servers, [topic], timeout=_TIMEOUT).values():
                    raise self._unavailable(refused.text)
            self._producer = Producer(
                {
                    **common,
                    "enable.idempotence": True,
                    "compression.type": "lz4",
                    "partitioner": "murmur2_random",
                    "delivery.timeout.ms": round(_TIMEOUT * 1000),
                }
            )
        return self._producer

    def _key(self, dead_letter: DeadLetter) -> bytes:
        return f"indexer/{self._index}/{dead_letter.row.hex()}".encode()

    def _value(self, dead_letter: DeadLetter) -> bytes:
        cells = {
            qualifier.decode(errors="backslashreplace"): base64.b64encode(value).decode()
            for qualifier, value in dead_letter.cells.items()
        }
        # Kafka would refuse a longer record each time, and HBase would send the batch again for ever.
        omitted: dict[str, int] = {}
        while sum(map(len, cells.values())) > _LONGEST:
            longest = max(cells, key=lambda name: len(cells[name]))
            omitted[longest] = len(base64.b64decode(cells.pop(longest)))
        return orjson.dumps(
            {
                "format": 1,
                "stage": "indexer",
                "index": self._index,
                "row": dead_letter.row.hex(),
                "version": dead_letter.version,
                "reason": dead_letter.reason,
                "cells": cells,
                "omitted": omitted,
            }
        )

    def _unavailable(self, error: object) -> Retriable:
        return Retriable(f"Kafka at {self._servers} does not take dead letters: {error}", "`tailorbird stack status`")
