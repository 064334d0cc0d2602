"""Read the committed records of captures in order, and pass them to a topology's ledger."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, TopicPartition

from cdc.model.errors import Retriable
from cdc.model.naming import change_topic, positions_topic, schemas_topic
from cdc.model.schema import TableId, TableSchema, schema_from_json
from cdc.process.kafka_foreign import own_record
from cdc.process.kafka_positions import WholePositions
from cdc.process.kafka_reader import topic_ids
from cdc.topology.topology import Topology
from ingest.ledger.common_topics import CommonTopics
from ingest.ledger.fold import LogRecord
from ingest.ledger.ledger import Partition, TopologyLedger, read_reach

_BATCH = 10_000
_POSITIONS = 2_000  # number of last records of `…positions` that a start reads; each covers all earlier ones
_ASK = 20.0
_SHORT = 0.01  # seconds that a poll waits, unless its batch is full earlier
_RUNNING = "check Kafka: `tailorbird stack status`"
_UNAVAILABLE = {
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._TRANSPORT,
    KafkaError._TIMED_OUT,
    KafkaError.LEADER_NOT_AVAILABLE,
}


class KafkaLedger:
    """Reads change topics into a topology's ledger. Every method raises Retriable while Kafka is unavailable.

    Only committed records are read. Each counts exactly once, because stores commit offsets together with data.
    `wanted` selects tables; tables that are captured later are added by themselves. If another process writes the
    ledger (not `folding`), only schemas and positions are read. `prompt` polls at shorter intervals.
    """

    def __init__(
        self,
        topology: Topology,
        topology_ledger: TopologyLedger,
        wanted: Callable[[TableId], bool],
        *,
        folding: bool = True,
        prompt: bool = False,
    ) -> None:
        self._topology, self._topology_ledger, self._wanted, self._folding = topology, topology_ledger, wanted, folding
        self._schemas, self._positions = schemas_topic(topology.name), positions_topic(topology.name)
        self._whole = WholePositions(topology.log.brokers, self._positions, "tailorbird-ledger")
        self._at_end: dict[Partition, bool] = {}
        self._ended = False
        self._newest: dict[TableId, TableSchema] = {}
        self._ids = set[str]()  # topics whose id the ledger knows
        self._absent = set[str]()  # tables whose topic does not exist yet, because they have no record
        self._common = CommonTopics(topology.routing, topology_ledger)
        self._consumer = Consumer(
            topology.log.brokers.reader(
                "tailorbird-ledger", fetch_wait_max_ms=5 if prompt else 50, queued_max_messages_kbytes=65_536
            )
        )

    def begin(self) -> None:
        """Read all schemas, then start to read every table. Raises Retriable if nothing was captured yet."""
        try:
            known = self._consumer.list_topics(timeout=_ASK).topics
            if missing := [name for name in (self._schemas, self._positions) if name not in known]:
                raise Retriable(f"there is no topic {missing[0]}", f"tailorbird capture {self._topology.file}")
            self._consumer.assign([TopicPartition(self._schemas, 0, OFFSET_BEGINNING)])
            self._at_end[self._schemas, 0] = False
            deadline = time.monotonic() + 3 * _ASK
            while not self._at_end[self._schemas, 0]:
                self._poll(_SHORT, 0)
                if time.monotonic() > deadline:
                    raise Retriable("Kafka does not return the schemas", _RUNNING)
            self._identify({self._topology.routing.topic_of(table) for table in self._newest})
            for schema in self._newest.values():
                self._resume_table(schema)
            self._rewind(self._common.starts())
            self._assign(
                (self._positions, number, max(low, high - _POSITIONS))
                for number in known[self._positions].partitions
                for low, high in (self._ends(self._positions, number),)
            )
        except KafkaException as error:
            raise Retriable(f"Kafka at {self._topology.log.brokers}: {error.args[0].str()}", _RUNNING) from error

    def poll(self, seconds: float, now_ms: int) -> int:
        """Wait up to `seconds` for records, and apply them. Returns the number of records.

        Raises Retriable while Kafka is unavailable.
        """
        try:
            found = self._poll(seconds, now_ms)
        except KafkaException as error:
            raise Retriable(f"Kafka at {self._topology.log.brokers}: {error.args[0].str()}", _RUNNING) from error
        self._topology_ledger.update_reached()
        return found

    @property
    def caught_up(self) -> bool:
        """Return whether each partition has been read to its end at least once."""
        return all(self._at_end.values())

    @property
    def at_end(self) -> bool:
        """Return whether the last poll reached the end of a partition: the ledger is up to date."""
        return self._ended

    def close(self) -> None:
        """Close the consumer."""
        self._consumer.close()

    def _poll(self, seconds: float, now_ms: int) -> int:
        records: dict[Partition, list[LogRecord]] = defaultdict(list)
        ended: dict[Partition, int] = {}
        count, again = 0, set[Partition]()
        for message in self._consumer.consume(_BATCH, seconds):
            topic, partition, offset = message.topic() or "", message.partition() or 0, message.offset() or 0
            error = message.error()
            if error is not None:
                if error.code() == KafkaError._PARTITION_EOF:
                    ended[topic, partition] = offset
                    self._at_end[topic, partition] = True
                elif error.code() in _UNAVAILABLE or not error.retriable():
                    raise KafkaException(error)
                continue
            count += 1
            ended.pop((topic, partition), None)
            if topic == self._schemas:
                again |= self._schema(message)
            elif topic == self._positions:
                self._position(message)
            else:
                records[topic, partition].append(LogRecord(offset, message.key() or b"", message.value()))
        self._ended = bool(ended)
        for topic, partition in again:  # drop fetched records of partitions that are now read again from the beginning
            records.pop((topic, partition), None)
            ended.pop((topic, partition), None)
            self._at_end[topic, partition] = False
        for (topic, partition), found in records.items():
            if self._common.contains(topic):
                self._common.fold(topic, partition, found, now_ms)
            else:
                self._topology_ledger.records(topic, partition, found, found[-1].offset + 1, now_ms)
        for (topic, partition), offset in ended.items():
            self._at_end[topic, partition] = True
            if self._common.contains(topic):
                self._common.ended(topic, partition, offset)
            else:
                self._topology_ledger.ended(topic, partition, offset)
        return count

    def _schema(self, message: Message) -> set[Partition]:
        """Apply a record of `…schemas`. Returns the partitions that must therefore be read again."""
        schema = own_record(self._schemas, message.offset(), message.value(), schema_from_json)
        if schema is None or not self._wanted(schema.table_id):
            return set()
        self._newest[schema.table_id] = schema
        # at the start, only the last schema of each table matters
        if len(self._at_end) <= 1:
            return set()
        return self._resume_table(schema) | self._rewind(self._common.starts())

    def _resume_table(self, schema: TableSchema) -> set[Partition]:
        name, known = (
            change_topic(self._topology.name, schema.table_id),
            schema.table_id in self._topology_ledger.tables,
        )
        again = self._topology_ledger.schema(schema, name)
        if self._topology.routing.shares(name):
            self._common.again(again)
            again = []
        if again and self._folding:
            self._consumer.incremental_unassign([TopicPartition(*one) for one in again])
            self._assign((*one, OFFSET_BEGINNING) for one in again)
        if known or schema.table_id in self._topology_ledger.without:
            return set(again)
        self._start(name)
        return set(again)

    def _rewind(self, starts: Mapping[Partition, int]) -> set[Partition]:
        """Read partitions of several tables from these offsets on. Returns those that were being read already."""
        if not self._folding:
            return set()
        reading = {one for one in starts if one in self._at_end}
        if reading:
            self._consumer.incremental_unassign([TopicPartition(*one) for one in reading])
        self._assign((*one, offset or OFFSET_BEGINNING) for one, offset in starts.items())
        return reading

    def _identify(self, topics: Collection[str]) -> None:
        """Ask Kafka for the ids of topics that are not known yet. A topic without records may not exist."""
        found = topic_ids(self._topology.log.brokers, [one for one in topics if one not in self._ids], timeout=_ASK)
        for topic, topic_id in found.items():
            self._ids.add(topic)
            self._topology_ledger.identify(topic, topic_id)

    def _start_common(self, name: str, topic: str) -> None:
        """Open the stores of a table that shares a topic. Their partitions are read from `CommonTopics.starts` on."""
        partitions = self._consumer.list_topics(topic, timeout=_ASK).topics[topic].partitions
        (self._absent.discard if partitions else self._absent.add)(name)
        for number in partitions:
            begin = self._topology_ledger.assigned(name, number)
            if begin > self._ends(topic, number)[1] and self._folding:
                self._topology_ledger.lost(name, number)
                begin = 0
            self._common.start(name, topic, number, begin)

    def _start(self, topic: str) -> None:
        """Start to read a table's topic. If it does not exist yet, a position that names a record of it tries again."""
        self._identify([self._topology.routing.topic(topic)])
        if (common := self._topology.routing.topic(topic)) != topic:
            self._start_common(topic, common)
            return
        starts = []
        partitions = self._consumer.list_topics(topic, timeout=_ASK).topics[topic].partitions
        (self._absent.discard if partitions else self._absent.add)(topic)
        for number in partitions:
            begin, (_, high) = self._topology_ledger.assigned(topic, number), self._ends(topic, number)
            if begin > high and self._folding:
                self._topology_ledger.lost(topic, number)
                begin = 0
            starts.append((topic, number, begin or OFFSET_BEGINNING))
        if self._folding:
            self._assign(starts)

    def _ends(self, topic: str, partition: int) -> tuple[int, int]:
        low, high = self._consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=_ASK)
        return int(low), int(high)

    def _assign(self, starts: Iterable[tuple[str, int, int]]) -> None:
        added = [TopicPartition(*start) for start in starts]
        self._at_end |= {(one.topic, one.partition): False for one in added}
        if added:
            self._consumer.incremental_assign(added)

    def _position(self, message: Message) -> None:
        reach = self._whole.read(
            message.partition() or 0, message.offset() or 0, message.key(), message.value(), read_reach
        )  # fmt: skip
        if reach is not None:
            self._topology_ledger.position(reach)
            if self._absent:
                written = {topic for (topic, _), end in reach.ends.items() if end}
                for name in [one for one in self._absent if self._topology.routing.topic(one) in written]:
                    self._start(name)
                self._rewind(self._common.starts())
