"""A change log in memory, for tests and simulations. It passes the same conformance tests as the one in Kafka."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from cdc.formats.position_records import PositionChains
from cdc.model.errors import Fatal
from cdc.model.history import Record as HistoryRecord
from cdc.model.schema import TableId, TableSchema, schema_from_json
from ingest.records.capture_interfaces import Checkpoint, Record, Recovered
from ingest.records.findings import Search
from ingest.records.position_writer import PositionWriter
from ingest.records.records import checkpoint_from

_KEY = b"memory"


@dataclass(slots=True)
class Broker:
    """State that outlives a session: committed records in order, checkpoints, and the epoch of the last writer.

    `lost` are topics that were deleted and created again since the last commit. `positions` are the position records
    that a compacted topic keeps, by key, with their offsets.
    """

    records: list[Record] = field(default_factory=list)
    checkpoints: list[Checkpoint] = field(default_factory=list)
    epoch: int = 0
    history: int = 0  # number of records before the last rewrite of the history
    lost: set[str] = field(default_factory=set)
    positions: dict[bytes, tuple[int, bytes]] = field(default_factory=dict)

    def lose(self, topic: str) -> None:
        """Delete a topic and create it again. Does nothing if the topic is empty."""
        if all(record.topic != topic for record in self.records):
            return
        self.history = sum(record.topic != topic for record in self.records[: self.history])
        self.records = [record for record in self.records if record.topic != topic]
        self.lost.add(topic)


class MemoryLog:
    """Change log of one session over a Broker; implements `ChangeLog`. Schemas and history are read from their
    topics. `every` is the number of positions from one whole record to the next."""

    def __init__(self, broker: Broker, schemas_topic: str, history_topic: str = "", *, every: int = 4) -> None:
        self._broker, self._schemas_topic, self._history_topic = broker, schemas_topic, history_topic
        self._epoch = -1
        self._pending: list[Record] = []
        self._restated: int | None = None
        self._positions = PositionWriter("", _KEY, few=-1, every=every)

    def recover(self) -> Recovered:
        """Fence all earlier writers of this source, then return what they committed. Implements `ChangeLog`."""
        self._broker.epoch += 1
        self._epoch = self._broker.epoch
        schemas: dict[TableId, TableSchema] = {}
        for record in self._broker.records:
            if record.topic == self._schemas_topic and record.value is not None:
                schema = schema_from_json(orjson.loads(record.value))
                schemas[schema.table_id] = schema
        newest = self._newest()
        return Recovered(
            checkpoint=newest, schemas=schemas, history=self.history(), behind=frozenset(self._broker.lost)
        )

    def _newest(self) -> Checkpoint | None:
        """Return the last checkpoint, read back from the records that a compacted topic keeps."""
        kept = sorted((offset, key, value) for key, (offset, value) in self._broker.positions.items())
        if not kept:
            return None
        offset, key, value = kept[-1]
        chains = PositionChains(lambda _, start, end: (one for one in kept if start <= one[0] < end))
        whole = chains.whole(0, offset, key, orjson.loads(value))
        if whole is None:
            raise Fatal("records of positions are missing")
        return checkpoint_from(whole)[0]

    def undelivered(self, seconds: float = 0.0) -> int:
        """Return 0, because every appended record is already stored."""
        return 0

    def history(self) -> tuple[HistoryRecord, ...]:
        """Return the committed schema history of this source, in order, since the last `restate`."""
        return tuple(
            (record.key.decode(), None if record.value is None else orjson.loads(record.value))
            for record in self._broker.records[self._broker.history :]
            if record.topic == self._history_topic
        )

    def restate(self, records: Iterable[Record]) -> None:
        """Append records that contain the whole history. Implements `ChangeLog`."""
        self._restated = len(self._broker.records) + len(self._pending)
        self.extend(records)

    def append(self, record: Record) -> None:
        """Add a record to the next commit. Implements `ChangeLog`."""
        self._check()
        self._pending.append(record)

    def extend(self, records: Iterable[Record]) -> None:
        """Append several records. Implements `ChangeLog`."""
        for record in records:
            self.append(record)

    def commit(self, checkpoint: Checkpoint) -> None:
        """Implements `ChangeLog.commit`."""
        self._check()
        self._broker.records += self._pending
        key, value, whole = self._positions.record(checkpoint, {}, (), 0)
        offset = len(self._broker.checkpoints)
        self._broker.positions[key] = offset, value
        self._positions.committed(checkpoint, offset if whole else None)
        self._broker.checkpoints.append(checkpoint)
        self._broker.lost.clear()
        self._pending = []
        if self._restated is not None:
            self._broker.history, self._restated = self._restated, None

    def kept(self) -> list[Mapping[str, Any]]:
        """Return all committed records of this source in the quarantine topic, in order. Implements `ChangeLog`."""
        found = (r.value for r in self._broker.records if r.topic.endswith(".quarantine") and r.value is not None)
        return [orjson.loads(value) for value in found]

    def search(self, search: Search) -> None:
        """Implements `ChangeLog.search`. The search finishes at once."""
        records = self._broker.records
        for offset in range(search.begin.get(0, 0), len(records)):
            if records[offset].topic == search.topic:
                search.see(0, records[offset].key, records[offset].value)
        search.begin, search.done = {0: len(records)}, True

    def abort(self) -> None:
        """Discard what was appended since the last commit. Implements `ChangeLog`."""
        self._pending, self._restated = [], None

    def _check(self) -> None:
        if self._epoch != self._broker.epoch:
            raise Fatal("another capture of this source has taken over", "run one capture per source")
