"""A source's history that a test commits into a log in memory or into Kafka, for readers of changes."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol
from zlib import crc32

import orjson

from cdc.formats.debezium import key_of, to_envelope
from cdc.model.event import ChangeEvent, Op, Position, SourceInfo, TransactionInfo
from cdc.model.history import SchemaChange, TableState, records
from cdc.model.naming import TRUNCATE_KEY, change_topic
from cdc.model.schema import Column, TableId, TableSchema
from cdc.topology.reader import read_topology
from cdc.topology.topology import Topology
from ingest.changes.feed_interfaces import SchemaVersions
from ingest.changes.merging import ChangeBatch, LogBytes, Offsets, merge
from ingest.changes.positions import BEGINNING, PositionMark, last_before
from ingest.log.kafka_log import KafkaLog
from ingest.log.kafka_topics import make_topics
from ingest.records.capture_interfaces import EVERY_PARTITION, Checkpoint, Record
from ingest.records.records import Recorder

PARTITIONS = 2
SERVER = 3001
MadeImage = Mapping[str, Any] | None


def topology_text(name: str, servers: str = "127.0.0.1:1") -> str:
    """Return a topology of one source, s, whose tables t and u are captured."""
    return (
        f"name: {name}\nsources:\n  s: {{type: mysql, hostname: h, port: 1, username: u, password: p, database: d, "
        f"tables: [t, u], server_id: 9}}\nlog: {{bootstrap_servers: '{servers}', partitions: {PARTITIONS}}}\n"
        "tables:\n  w: {query: SELECT t.id FROM s.t t, row_key: [id]}\n"
    )


def topology_named(name: str, servers: str = "127.0.0.1:1") -> Topology:
    """Load that topology."""
    return read_topology(topology_text(name, servers), file=f"{name}.yml", environ={})


def schema_of(table: str = "t", version: int = 1, **columns: str) -> TableSchema:
    """Return the schema of a table of the source; `id` is its key."""
    found = {"id": "int", **columns}
    return TableSchema(
        table_id=TableId(source="s", database="d", table=table),
        version=version,
        columns=tuple(Column(name=name, column_type=kind, nullable=name != "id") for name, kind in found.items()),
        primary_key=("id",),
    )


class HistoryTarget(Protocol):
    """Accepts a history."""

    def schema(self, schema: TableSchema, sequence: int) -> None: ...

    def change(self, event: ChangeEvent, schema: TableSchema) -> None: ...

    def commit(self, position: Position) -> None: ...


@dataclass
class SourceLog:
    """The source: its transactions, one after another; `maria` gives them MariaDB's GTIDs of a domain."""

    into: HistoryTarget
    maria: int | None = None
    sequence: int = 0
    transactions: int = 0
    server: int = SERVER
    schemas: dict[str, TableSchema] = field(default_factory=dict)
    reported: list[ChangeEvent] = field(default_factory=list)

    def columns(self, schema: TableSchema) -> None:
        """Add a schema change; it takes a sequence number as a row does."""
        self.sequence += 1
        self.schemas[schema.table_id.table] = schema
        self.into.schema(schema, self.sequence)

    def transaction(self, *changes: tuple[Op, MadeImage, MadeImage] | tuple[Op, MadeImage, MadeImage, str]) -> None:
        """Add a transaction: op, before, after and the table (t) of each change."""
        self.transactions += 1
        gtid = f"uuid{self.server}:{self.transactions}"
        if self.maria is not None:
            gtid = f"{self.maria}-{self.server}-{self.transactions}"
        for order, (op, before, after, *where) in enumerate(changes, 1):
            self.sequence += 1
            place = TransactionInfo(id=gtid, total_order=order, data_collection_order=order)
            self._report(op, before, after, where[0] if where else "t", gtid, place, self.sequence)

    def read(self, row: Mapping[str, Any], low: int) -> None:
        """Add a snapshot row whose low watermark has a number."""
        self._report("r", None, row, "t", None, None, low)

    def truncated(self) -> None:
        """Truncate the table."""
        self.sequence += 1
        self._report("t", None, None, "t", None, None, self.sequence)

    def commit(self) -> None:
        """Commit everything."""
        gtids = f"{self.maria}-{self.server}-{self.transactions}" if self.maria is not None else ""
        self.into.commit(Position(file="f", pos=self.sequence, gtid_set=gtids, sequence=self.sequence))

    def _report(
        self, op: Op, before: MadeImage, after: MadeImage, table: str, gtid: str | None,
        place: TransactionInfo | None, sequence: int,
    ) -> None:  # fmt: skip
        schema = self.schemas[table]
        info = SourceInfo(
            table_id=schema.table_id, ts_ms=1_500_000_000_000 + 1000 * self.sequence,
            server_id=self.server if gtid else 0, gtid=gtid, file="f", pos=self.sequence, row=0, sequence=sequence,
            snapshot="true" if op == "r" else "false", connector="mysql" if self.maria is None else "mariadb",
        )  # fmt: skip
        event = ChangeEvent(op=op, before=before, after=after, source=info, ts_ms=5, transaction=place)
        self.reported.append(event)
        self.into.change(event, schema)


@dataclass
class MemoryChanges:
    """Implements `ingest.changes.feed_interfaces.ChangeTables`; each partition of a commit has a marker's offset.

    `most` is the number of records of a partition that a read returns. Records older than `whole_since` may be
    compacted.
    """

    most: int = 3
    now_ms: int = 1
    whole_since: int = 0
    ends: dict[TableId, dict[int, int]] = field(default_factory=dict)
    found: dict[TableId, SchemaVersions] = field(default_factory=dict)
    marks: list[PositionMark] = field(default_factory=list)
    records: dict[TableId, list[list[LogBytes]]] = field(default_factory=dict)
    reads: int = 0
    _next: dict[TableId, list[int]] = field(default_factory=dict)
    _touched: set[tuple[TableId, int]] = field(default_factory=set)

    def schema(self, schema: TableSchema, sequence: int) -> None:
        """See `HistoryTarget`."""
        known = self.found[schema.table_id].found if schema.table_id in self.found else ()
        self.found[schema.table_id] = SchemaVersions((*known, (sequence, schema)))
        self.records.setdefault(schema.table_id, [[] for _ in range(PARTITIONS)])
        self._next.setdefault(schema.table_id, [0] * PARTITIONS)

    def change(self, event: ChangeEvent, schema: TableSchema) -> None:
        """See `HistoryTarget`."""
        image, value = event.after or event.before, orjson.dumps(to_envelope(event, "mem"))
        key = orjson.dumps(key_of(schema, image)) if image is not None else TRUNCATE_KEY
        places = range(PARTITIONS) if image is None else [crc32(key) % PARTITIONS]
        for place in places:
            for one in (value, None) if event.op == "d" else (value,):
                at = self._next[schema.table_id][place]
                self.records[schema.table_id][place].append(LogBytes(at, one, self.now_ms))
                self._next[schema.table_id][place] = at + 1
                self._touched.add((schema.table_id, place))

    def commit(self, position: Position) -> None:
        """See `HistoryTarget`."""
        for table, following in self._next.items():
            self.ends[table] = dict(enumerate(following))
        for table, place in self._touched:
            self._next[table][place] += 1
        self._touched.clear()
        ends = {str(table): dict(known) for table, known in self.ends.items()}
        self.marks.append(PositionMark(2 * len(self.marks), self.now_ms, position, ends))

    def tables(self) -> tuple[TableId, ...]:
        """See `ChangeTables`."""
        return tuple(sorted(self.ends))

    def begins(self, table: TableId) -> Offsets:
        """See `ChangeTables`."""
        return dict.fromkeys(range(PARTITIONS), 0)

    def released(self, table: TableId) -> Offsets:
        """See `ChangeTables`."""
        return self.ends.get(table, {})

    def read(self, table: TableId, starts: Offsets, ends: Offsets) -> ChangeBatch:
        """See `ChangeTables`."""
        self.reads += 1
        found, nexts, whole = dict[int, list[LogBytes]](), dict[int, int](), set[int]()
        for place, end in ends.items():
            there = [one for one in self.records[table][place] if starts.get(place, 0) <= one.offset < end]
            found[place] = there[: self.most]
            if len(there) <= self.most:
                whole.add(place)
            nexts[place] = end if place in whole else found[place][-1].offset + 1
        return merge(found, {place: starts.get(place, 0) for place in ends}, nexts, whole)

    def bounds(self) -> tuple[int, int]:
        """See `PositionMarks`."""
        return 0, 2 * len(self.marks)

    def first(self, offset: int) -> PositionMark | None:
        """See `PositionMarks`."""
        at = bisect_left([mark.offset for mark in self.marks], offset)
        return self.marks[at] if at < len(self.marks) else None

    def before(self, table: TableId, reached: Callable[[Position], bool]) -> Offsets | None:
        """See `ChangeTables`."""
        found = last_before(self, reached, self.whole_since)
        if found == BEGINNING:
            return self.begins(table)
        return None if found is None else {p: found.ends.get(str(table), {}).get(p, 0) for p in self.released(table)}

    def newest(self, table: TableId, ends: Offsets) -> ChangeBatch:
        """See `ChangeTables`."""
        most, self.most = self.most, 1000
        try:
            return self.read(table, {place: max(0, end - 64) for place, end in ends.items()}, ends)
        finally:
            self.most = most

    def schemas(self, table: TableId) -> SchemaVersions:
        """See `ChangeTables`."""
        return self.found[table]


class KafkaHistory:
    """Commits a history as capture does."""

    def __init__(self, topology: Topology) -> None:
        source = topology.sources["s"]
        self._recorder = Recorder(topology.name, "mysql")
        self._topology = topology
        self._log = KafkaLog(topology, source, make_topics(topology, source))
        self._log.recover()

    def schema(self, schema: TableSchema, sequence: int) -> None:
        """See `HistoryTarget`."""
        position = Position(file="f", pos=sequence, gtid_set="", sequence=sequence)
        state = TableState(table_id=schema.table_id, schema=schema, version=schema.version)
        change = SchemaChange(position=position, ddl="", tables=(state,))
        self._log.extend([*self._recorder.history(records(change)), self._recorder.schema(schema)])

    def change(self, event: ChangeEvent, schema: TableSchema) -> None:
        """See `HistoryTarget`."""
        if event.op == "t":
            topic = change_topic(self._topology.name, schema.table_id)
            value = orjson.dumps(to_envelope(event, self._topology.name))
            self._log.append(Record(topic, TRUNCATE_KEY, value, EVERY_PARTITION))
        else:
            self._log.extend(self._recorder.change(event, schema))

    def commit(self, position: Position) -> None:
        """See `HistoryTarget`."""
        self._log.commit(Checkpoint(position=position, snapshot="done", ts_ms=int(time.time() * 1000)))

    def close(self) -> None:
        """Close the Kafka clients."""
        self._log.close()


def images(reported: Sequence[ChangeEvent]) -> list[tuple[str, Mapping[str, Any] | None]]:
    """Return the parts of changes that tests compare."""
    return [(event.op, event.after or event.before) for event in reported]
