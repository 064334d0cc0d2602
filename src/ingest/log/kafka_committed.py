"""Read back from Kafka what the captures of one source have committed: position, schemas, history, quarantine."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import orjson
from confluent_kafka import OFFSET_BEGINNING, IsolationLevel, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]  # missing in __all__ only

from cdc.formats.position_records import CHANGED, WHOLE, Stored, applied, source_key
from cdc.model import naming
from cdc.model.errors import Fatal, Retriable
from cdc.model.history import Record as HistoryRecord
from cdc.model.history import history_from_records
from cdc.model.schema import TableId, TableSchema, schema_from_json
from cdc.packed import PackedJson
from cdc.process.kafka_foreign import MALFORMED, ignored, own_record
from cdc.process.kafka_positions import WholePositions
from cdc.process.kafka_reader import KafkaReader
from cdc.topology.topology import Source, Topology
from ingest.capture.marks import marks_of
from ingest.log.kafka_topics import TIMEOUT, SourceTopics, client_settings
from ingest.records.records import checkpoint_from

_QUEUE = 4096  # KiB that are read ahead: schemas of 20,000 tables have 100 MiB


class CommittedRecords:
    """Committed records of one source. Records that no capture wrote are ignored and counted.

    Every method raises KafkaException or Retriable while Kafka is unavailable.
    """

    def __init__(self, topology: Topology, source: Source, topics: SourceTopics) -> None:
        self._topics, self._source, self._brokers = topics, source.name, topology.log.brokers
        self._key = naming.transactional_id(topology.name, source.name).encode()
        self._positions = WholePositions(self._brokers, topics.positions, "tailorbird-capture")

    def last_position(self) -> Mapping[str, Any] | None:
        """Return the source's newest position as a whole record, from its own partition or else from all others.

        None if there is none. Raises Fatal if a record is missing that the newest one needs.
        """
        own = self._topics.positions_partition
        with self._reader() as reader:
            others = [p for _, p in reader.partitions(self._topics.positions) if p != own]
            for partition in (own, *others):
                found = self._last_of(reader, partition)
                if found is not None:
                    return found
        return None

    def _last_of(self, reader: KafkaReader, partition: int) -> Mapping[str, Any] | None:
        """Return the source's newest record in a partition of `…positions`, searched backwards in growing steps."""
        topic, wait_for_others = self._topics.positions, partition == self._topics.positions_partition
        end = self._stable_end(topic, partition, wait=wait_for_others)
        low, _ = reader.bounds((topic, partition))
        step, high = 64, end
        while high > low:
            start = max(low, high - step)
            newest: Stored | None = None
            for offset, key, value in self._between(reader, topic, partition, start, end):
                if source_key(key) == self._key and own_record(topic, offset, value, _readable, partition, CHANGED):
                    newest = offset, key, value
            if newest is not None:
                found: Mapping[str, Any] | None = self._positions.read(partition, *newest, lambda content: content)
                if found is None:
                    what = f"{topic}, partition {partition}: records are missing before offset {newest[0]}"
                    raise Fatal(what, "restore them, or capture under a new topology name: tailorbird capture --from")
                return found
            step, high = step * 8, start
        return None

    def schemas(self) -> Mapping[TableId, TableSchema]:
        """Return the newest published schema of each table of the source."""
        found: dict[TableId, TableSchema] = {}
        topic = self._topics.schemas
        end = self._stable_end(topic, 0, wait=True)
        with self._reader() as reader:
            for offset, _, value in self._between(reader, topic, 0, OFFSET_BEGINNING, end):
                schema = own_record(topic, offset, value, schema_from_json)
                if schema is not None and schema.table_id.source == self._source:
                    found[schema.table_id] = schema
        return found

    def history(self, start: int) -> tuple[HistoryRecord, ...]:
        """Return the schema history of the source, in order, from an offset on (0: from the beginning)."""
        found: list[HistoryRecord] = []
        topic = self._topics.history
        with self._reader() as reader:
            end = self._stable_end(topic, 0, wait=True)
            for offset, key, value in self._between(reader, topic, 0, start or OFFSET_BEGINNING, end):
                try:
                    if orjson.loads(key or b"[]")[1:2] != [self._source]:
                        continue
                except MALFORMED as error:
                    ignored(topic, offset, error)
                    continue
                name = (key or b"[]").decode()
                content = own_record(topic, offset, value, partial(_history_record, name, self._source))
                if value is None or content is not None:
                    found.append((name, None if value is None else PackedJson(value)))
        return tuple(found)

    def quarantined(self) -> list[Mapping[str, Any]]:
        """Return all records of the source in the quarantine topic, in order."""
        found: list[Mapping[str, Any]] = []
        topic = self._topics.quarantine
        with self._reader() as reader:
            end = self._stable_end(topic, 0, wait=True)
            for offset, _, value in self._between(reader, topic, 0, OFFSET_BEGINNING, end):
                kept = own_record(topic, offset, value, _quarantine_record)
                if kept is not None and kept.get("source") == self._source:
                    found.append(kept)
        return found

    def _stable_end(self, topic: str, partition: int, *, wait: bool) -> int:
        """Return the end of a partition once no transaction is open in it. Raises Retriable if that takes too long.

        A read_committed consumer sees no record, of any source, after the begin of an open transaction.
        """
        newest = OffsetSpec.latest()  # type: ignore[no-untyped-call]  # typed nowhere
        at = TopicPartition(topic, partition)
        deadline = time.monotonic() + TIMEOUT
        with AdminClient(client_settings(self._brokers)) as admin:
            while True:
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
        self, reader: KafkaReader, topic: str, partition: int, start: int, end: int
    ) -> Iterator[tuple[int, bytes | None, bytes | None]]:
        """Yield offset, key and value of the committed records from offset `start` up to, but not including, `end`."""
        at = topic, partition
        for message in reader.records({at: start}, {at: end}):
            yield message.offset() or 0, message.key(), message.value()

    def _reader(self) -> KafkaReader:
        return KafkaReader(
            self._brokers, "tailorbird-capture", "committed records cannot be read", answer=TIMEOUT,
            queued_max_messages_kbytes=_QUEUE,
        )  # fmt: skip


def _readable(content: Any) -> bool:
    """Return True for a position record, whole or of changes. Raises an error of `MALFORMED` if it is not one."""
    checkpoint_from({**content, "format": WHOLE})
    if content.get("format") == CHANGED:
        applied({"end_offsets": {}}, content)
        int(content["base"]), int(content["number"])
    return True


def _quarantine_record(content: Any) -> dict[str, Any]:
    if any(not isinstance(content[name], str) for name in ("source", "database", "table")):
        raise TypeError("a name that is no text")
    int(content["sequence"])
    found: dict[str, Any] = content
    return found


def _history_record(name: str, source: str, content: Any) -> bool:
    """Return True for a record of the history. Raises an error of `MALFORMED` if it is not one."""
    if not isinstance(content.get("sequence", 0), int):
        raise TypeError("a sequence number that is no number")
    history_from_records([(name, content)], source)
    marks_of([(name, content)], source)
    return True
