"""Topics of a Kafka cluster as a source: records from some offsets on. There are no tables to read."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from prometheus_client import Counter

from cdc.model.errors import Retriable, UsageError
from cdc.model.event import Position
from cdc.topology.topology import Mirror, Source
from ingest.capture.empty_chunks import StreamOnlySource
from ingest.ddl.catalog import Catalog, TableDefinition
from ingest.ddl.dialect import Dialect
from ingest.events.tables import Tables
from ingest.mirror.formats import FORMATS
from ingest.mirror.topics import LOG, OFFSETS, InputRecord, MirroredTable, PartitionEnd, TopicEvents, reads_of
from ingest.records.capture_interfaces import Checkpoint, PositionLost, ServerTables, Stream

REPEATED = Counter(
    "tailorbird_mirror_repeated_records", "Records skipped because their writer had published them before", ["source"]
)
_TIMEOUT = 10.0  # seconds to wait for the brokers
_LOOK = 5.0  # seconds to wait for a topic's first record, if its columns are not configured
_IDLE = 1.0  # seconds without a record until CaughtUp is repeated
_LOST = (KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._AUTO_OFFSET_RESET)


class TopicsSource(StreamOnlySource):
    """Topics of other writers as a source; implements `SourceServer`."""

    def __init__(self, settings: Source, mirror: Mirror) -> None:
        self._settings, self._mirror = settings, mirror
        self.mirrored = tuple(
            MirroredTable(
                table=table,
                topic=mirror.topics[table],
                columns=tuple(mirror.columns.get(table, {}).items()),
                key=settings.rules[table].message_key_columns if table in settings.rules else (),
                exact=settings.permitted is not None,
                shared=mirror.topics[table] in mirror.shared,
            )
            for table in settings.tables
        )

    def head(self) -> Position:
        """Return the position at the beginning of all topics, from which capture reads everything in them."""
        return Position(file=LOG, pos=0, gtid_set="", sequence=0)

    def end(self) -> Position:
        """Return a position with the sum of the topics' end offsets."""
        with self._consumer() as consumer:
            ends = [self._marks(consumer, part)[1] for part in self._parts(consumer)]
        return Position(file=LOG, pos=sum(ends), gtid_set="", sequence=0)

    def seen(self) -> ServerTables:
        """Implements `SourceServer.seen`: columns from the topology, or from the inline schema of a topic's first
        record."""
        tables: dict[tuple[str, str], TableDefinition] = {}
        for one in self.mirrored:
            change = None
            if not one.columns or not one.key:
                change = self._first(one)
            found = reads_of(one, change, self._mirror.decimals)
            where = f"source {self._settings.name}: table {one.table.database}.{one.table.table} of topic {one.topic}"
            if found is None:
                raise UsageError(
                    f"{where} has no inline schema",
                    f"configure its columns: `{one.table.table}: {{columns: {{id: bigint}}}}`",
                )
            if not found.definition.primary_key:
                raise UsageError(f"{where} has no key in its records", "message_key_columns: […]")
            tables[one.table.database, one.table.table] = found.definition
        return ServerTables(catalog=Catalog(tables=tables), dialect=Dialect(server="kafka", version=0))

    def _first(self, one: MirroredTable) -> Any:
        """Return a table's first record, decoded. Raises Retriable if there is none yet."""
        only = sum(other.topic == one.topic for other in self.mirrored) == 1
        with self._consumer() as consumer:
            parts = [part for part in self._parts(consumer) if part.topic == one.topic]
            consumer.assign([TopicPartition(p.topic, p.partition, self._marks(consumer, p)[0]) for p in parts])
            deadline = time.monotonic() + _LOOK
            while time.monotonic() < deadline:
                for message in consumer.consume(100, 0.2):
                    if message.error() is not None:
                        continue
                    try:
                        change = FORMATS[self._mirror.form](message.key(), message.value())
                    except (ValueError, KeyError, TypeError):
                        continue  # not an error here: the stream writes it as a dead letter
                    if change is None or change.op in ("d", "t"):
                        continue
                    if one.contains(change, only=only) and (one.columns or change.schema is not None or change.key):
                        return change
        if one.columns:
            return None
        raise Retriable(f"source {self._settings.name}: topic {one.topic} has no record with its columns")

    @contextmanager
    def stream(self, checkpoint: Checkpoint, tables: Tables, *, busy: bool) -> Iterator[Stream]:
        """Implements `SourceServer.stream`. Raises PositionLost if a topic no longer contains the next records."""
        known = checkpoint.state.get(OFFSETS, {}) if checkpoint.position.pos else {}
        with self._consumer() as consumer:
            starts = []
            for part in self._parts(consumer):
                low, high = self._marks(consumer, part)
                entry = known.get(f"{part.topic}:{part.partition}")
                start = low if entry is None else int(entry[0])
                if entry is not None and not low <= start <= high:
                    raise PositionLost(
                        f"source {self._settings.name}: the next offset of {part.topic}:{part.partition} is {start}, "
                        f"but the topic contains {low} to {high}",
                        "raise its retention, and set `position_lost: resnapshot` to start again with what it contains",
                    )
                starts.append(TopicPartition(part.topic, part.partition, start))
            consumer.assign(starts)
            yield TopicEvents(
                _Feed(consumer, self._settings, busy=busy), tables, self.mirrored, checkpoint,
                starts={f"{part.topic}:{part.partition}": part.offset for part in starts},
                form=self._mirror.form, decimals=self._mirror.decimals,
                skipped=REPEATED.labels(self._settings.name).inc, withheld=self._settings.permitted is not None,
            )  # fmt: skip

    @contextmanager
    def _consumer(self) -> Iterator[Any]:
        consumer = Consumer(
            self._mirror.brokers.reader(
                f"tailorbird-{self._settings.name}", auto_offset_reset="error", fetch_wait_max_ms=20
            )
        )
        try:
            yield consumer
        except KafkaException as error:
            what = f"source {self._settings.name}: Kafka at {self._mirror.brokers}: {error.args[0].str()}"
            raise Retriable(what) from error
        finally:
            consumer.close()

    def _parts(self, consumer: Any) -> list[TopicPartition]:
        found = []
        for topic in sorted({one.topic for one in self.mirrored}):
            metadata = consumer.list_topics(topic, timeout=_TIMEOUT).topics[topic]
            if metadata.error is not None:
                raise Retriable(f"source {self._settings.name}: topic {topic}: {metadata.error.str()}")
            found += [TopicPartition(topic, number) for number in sorted(metadata.partitions)]
        return found

    @staticmethod
    def _marks(consumer: Any, part: TopicPartition) -> tuple[int, int]:
        low, high = consumer.get_watermark_offsets(part, timeout=_TIMEOUT)
        return int(low), int(high)


class _Feed:
    """Records of assigned partitions; implements `topics.TopicFeed`."""

    def __init__(self, consumer: Any, source: Source, *, busy: bool) -> None:
        self._consumer, self._source, self._idle = consumer, source, 0.02 if busy else _IDLE

    def __iter__(self) -> Iterator[InputRecord | PartitionEnd | None]:
        while True:
            messages = self._consumer.consume(500, 0.05)
            if not messages:
                yield None
                messages = self._consumer.consume(500, self._idle)
            for message in messages:
                error = message.error()
                if error is None:
                    yield InputRecord(
                        message.topic(), message.partition(), message.offset(), message.key(), message.value(),
                        message.timestamp()[1],
                    )  # fmt: skip
                elif error.code() in _LOST:
                    raise PositionLost(
                        f"source {self._source.name}: {message.topic()}:{message.partition()}: {error.str()}",
                        "raise its retention, and set `position_lost: resnapshot` to start again with what it contains",
                    )
                elif error.code() == KafkaError._PARTITION_EOF:
                    yield PartitionEnd(message.topic(), message.partition(), message.offset())
                elif not error.retriable():
                    raise KafkaException(error)
