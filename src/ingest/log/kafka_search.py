"""Search a change topic in a separate thread, while the session's producer writes to it."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping

from confluent_kafka import OFFSET_BEGINNING, IsolationLevel, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]  # missing in __all__ only

from cdc.model.brokers import Brokers
from cdc.model.errors import Fatal, Retriable
from cdc.model.naming import Routing
from cdc.process.kafka_reader import KafkaReader
from ingest.log.kafka_topics import TIMEOUT, client_settings
from ingest.records.findings import Search


class KafkaSearch:
    """Passes all committed records of a table to a search, then sets its `done`; after an error, its `failed`.

    `routing` gives the topic in Kafka, and its records' keys.

    `floor` are the end offsets, by partition, of what the session has committed. A broker acknowledges a commit before
    the partitions show it to read_committed consumers, so the search waits until they do.
    """

    def __init__(self, brokers: Brokers, routing: Routing, search: Search, floor: Mapping[int, int]) -> None:
        self._brokers, self._search, self._truncation_point = brokers, search, floor
        self._routing, self._topic = routing, routing.topic(search.topic)

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
        topic, what = self._topic, f"{self._topic} cannot be searched"
        starts = {(topic, p): search.begin.get(p, OFFSET_BEGINNING) for p in self._truncation_point}
        with KafkaReader(self._brokers, "tailorbird-capture", what, answer=TIMEOUT) as reader:
            for message in reader.records(starts, {(topic, p): end for p, end in ends.items()}):
                key = self._routing.own_key(search.topic, message.key() or b"")
                if key is not None:
                    search.see(message.partition() or 0, key, message.value())
                if search.given_up or search.full:
                    break
        search.begin, search.done = ends, True

    def _ends(self) -> dict[int, int]:
        """Return the end offset of each partition for a read_committed consumer."""
        newest = OffsetSpec.latest()  # type: ignore[no-untyped-call]  # typed nowhere
        asked = {TopicPartition(self._topic, p): newest for p in self._truncation_point}
        deadline = time.monotonic() + TIMEOUT
        with AdminClient(client_settings(self._brokers)) as admin:
            while True:
                committed = IsolationLevel.READ_COMMITTED
                found = admin.list_offsets(asked, isolation_level=committed, request_timeout=TIMEOUT)
                ends = {at.partition: int(one.result().offset) for at, one in found.items()}
                if all(ends[p] >= floor for p, floor in self._truncation_point.items()) or self._search.given_up:
                    return ends
                if time.monotonic() > deadline:
                    raise Retriable(f"Kafka does not show what was committed to {self._topic}")
                time.sleep(0.01)
