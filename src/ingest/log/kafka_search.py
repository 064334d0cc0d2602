"""Search a change topic in a separate thread, while the session's producer writes to it."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, IsolationLevel, KafkaException, TopicPartition
from confluent_kafka import KafkaError as Code
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]  # missing in __all__ only

from cdc.model.errors import Fatal, Retriable
from ingest.log.kafka_topics import TIMEOUT
from ingest.records.findings import Search

_BATCH = 500


class KafkaSearch:
    """Passes all committed records of a topic to a search, then sets its `done`; after an error, its `failed`.

    `floor` are the end offsets, by partition, of what the session has committed. A broker acknowledges a commit before
    the partitions show it to read_committed consumers, so the search waits until they do.
    """

    def __init__(self, settings: Mapping[str, Any], search: Search, floor: Mapping[int, int]) -> None:
        self._settings, self._search, self._truncation_point = settings, search, floor

    def start(self) -> None:
        """Start to read. Everything that was committed before this call is read."""
        threading.Thread(target=self._run, name="search", daemon=True).start()

    def _run(self) -> None:
        try:
            self._read()
        except KafkaException as exception:
            error = exception.args[0]
            self._search.failed = Retriable(f"Kafka: search {self._search.topic}: {error.str()}")
        except Retriable as error:
            self._search.failed = error
        except BaseException as error:  # noqa: BLE001  # raised by the thread that waits for the search
            failed = Fatal(f"search {self._search.topic}: {error!r}", "report it")
            failed.__cause__ = error
            self._search.failed = failed

    def _read(self) -> None:
        search, ends = self._search, self._ends()
        begins = {p: search.begin.get(p, OFFSET_BEGINNING) for p in self._truncation_point}
        waiting = {p for p, end in ends.items() if end > max(begins[p], 0)}
        consumer = Consumer(
            {
                **self._settings,
                "group.id": "tailorbird-capture",  # required by the client; nothing is ever committed
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 10,
            }
        )
        try:
            consumer.assign([TopicPartition(search.topic, p, begins[p]) for p in sorted(waiting)])
            deadline = time.monotonic() + TIMEOUT
            while waiting and not search.given_up and not search.full:
                messages = consumer.consume(_BATCH, 0.05)
                if messages:
                    deadline = time.monotonic() + TIMEOUT
                elif time.monotonic() > deadline:
                    raise Retriable(f"Kafka does not answer while {search.topic} is searched")
                for message in messages:
                    error, partition, offset = message.error(), message.partition() or 0, message.offset() or 0
                    if error is None:
                        if offset < ends[partition]:
                            search.see(partition, message.key() or b"", message.value())
                        else:
                            waiting.discard(partition)
                    elif error.code() == Code._PARTITION_EOF:
                        if offset >= ends[partition]:
                            waiting.discard(partition)
                    elif not error.retriable():
                        raise KafkaException(error)
        finally:
            consumer.close()
        search.begin, search.done = ends, True

    def _ends(self) -> dict[int, int]:
        """Return the end offset of each partition for a read_committed consumer."""
        newest = OffsetSpec.latest()  # type: ignore[no-untyped-call]  # typed nowhere
        asked = {TopicPartition(self._search.topic, p): newest for p in self._truncation_point}
        # in a variable, because the client must live until its answers have arrived
        admin = AdminClient(dict(self._settings))
        deadline = time.monotonic() + TIMEOUT
        while True:
            found = admin.list_offsets(asked, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=TIMEOUT)
            ends = {at.partition: int(one.result().offset) for at, one in found.items()}
            if all(ends[p] >= floor for p, floor in self._truncation_point.items()) or self._search.given_up:
                return ends
            if time.monotonic() > deadline:
                raise Retriable(f"Kafka does not show what was committed to {self._search.topic}")
            time.sleep(0.01)
