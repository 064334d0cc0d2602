"""The ledger of a topology: the ledgers of its tables, and up to which position of each source they are complete.

Schemas, positions and records of change topics may arrive in any order. If a new schema changes what a table's digest
covers, its partitions are read again. Then every row is hashed again from its last record, with the defaults of columns
that were added later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from cdc.merkle.canonical import CoveredColumns, covered
from cdc.merkle.leaves import Grid, grid_of
from cdc.merkle.tree import Digest, Leaves
from cdc.model.event import Position
from cdc.model.naming import Routing
from cdc.model.schema import TableId, TableSchema
from ingest.ledger.fold import WINDOW_MS, Broken, Fold, HeldRow, LogRecord, RowPlace, RowStore, TaggedChange
from ingest.ledger.places import Reach, as_of, tag_of

Partition = tuple[str, int]  # topic, partition
_MOST_SCANNED = 50_000  # records of other tables after which a table's store notes that it has none of them
_MOST_WAITING = 4_000  # maximum number of positions that wait until the topics are read up to them


class PartitionStore(RowStore, Protocol):
    """Store of one partition, as the ledger uses it."""

    @property
    def next_offset(self) -> int: ...

    @property
    def unread(self) -> int: ...

    @property
    def broken(self) -> Broken | None: ...

    def begin_again(self, shape: str) -> None:
        """Delete everything; the partition is read again. `shape` identifies what the new digests cover."""

    def seen(self, next_offset: int) -> None:
        """Set the next offset; there were no records before it."""

    def leaves(self, first: int, last: int) -> tuple[Leaves, list[TaggedChange]]:
        """Return the digests of the leaves `first` to `last`, and their recent changes by position."""

    def rows_of(self, leaf: int) -> tuple[list[tuple[bytes, HeldRow]], list[TaggedChange]]:
        """Return the rows of a leaf as (record key, row), and the leaf's recent changes by position."""

    def rows_at(self, places: Iterable[RowPlace]) -> tuple[dict[RowPlace, HeldRow], list[TaggedChange]]:
        """Return the stored rows with these keys, and the recent changes of all leaves by position."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceReach:
    """A committed position of a source. `ends` are the offsets, by topic and partition, of everything before it.

    `unknown` maps tables (`database.table`) of which the topic is incomplete at the position to the reason. `signals`
    is the offset up to which capture has executed signals.
    """

    source: str
    position: Position
    ends: Mapping[Partition, int]
    unknown: Mapping[str, str] = field(default_factory=dict)
    signals: int = 0


@dataclass(slots=True)
class PartitionLedger:
    """The ledger of one table, with one store per partition of its topic. `name` is its `naming.change_topic`, `topic`
    the topic in Kafka, which may contain other tables, too (`naming.Routing`), and `topic_id` the id of that topic."""

    schema: TableSchema
    name: str
    topic: str
    covered: CoveredColumns
    grid: Grid
    topic_id: str = ""
    stores: dict[int, PartitionStore] = field(default_factory=dict)
    folds: dict[int, Fold] = field(default_factory=dict)

    @property
    def shape(self) -> str:
        """Return what the stores depend on: what the digests cover, the topic if it contains other tables, and its id.
        Offsets in another topic mean nothing, even if it has the same name."""
        where = "" if self.topic == self.name else f" in {self.topic}"
        return _shape(f"{self.covered.shape}{where}", self.topic_id)

    def as_of(self, first: int, last: int, low: Position, high: Position) -> tuple[Leaves, frozenset[int]]:
        """Return the leaves `first` to `last` as of position `low`, and the leaves that changed between `low` and
        `high`.

        `low` must be at most ten minutes old. A SELECT that ran between the two positions may show either state of the
        changed leaves.
        """
        merged, unsure, reaches = Leaves(), set[int](), (Reach(low), Reach(high))
        for store in self.stores.values():
            leaves, between = as_of(*store.leaves(first, last), *reaches)
            merged.merge(leaves)
            unsure |= between
        return merged, frozenset(unsure)

    def rows_of(self, leaf: int, low: Position) -> tuple[dict[bytes, tuple[int, HeldRow]], bool]:
        """Return the present rows of a leaf by record key, each with its partition.

        The second result says whether the leaf has changed since `low`.
        """
        found, reach, moved = dict[bytes, tuple[int, HeldRow]](), Reach(low), False
        for number, store in self.stores.items():
            rows, tagged = store.rows_of(leaf)
            found |= {key: (number, held) for key, held in rows}
            moved = moved or any(not reach.covers(one.tag) for one in tagged)
        return found, moved

    def rows_at(
        self, places: Sequence[RowPlace], low: Position
    ) -> tuple[dict[bytes, tuple[int, HeldRow]], frozenset[int]]:
        """Return the present rows with these keys, by record key, each with its partition.

        The second result are the leaves that have changed since `low`.
        """
        found, reach, moved = dict[bytes, tuple[int, HeldRow]](), Reach(low), set[int]()
        for number, store in self.stores.items():
            rows, tagged = store.rows_at(places)
            found |= {place.key: (number, held) for place, held in rows.items()}
            moved.update(one.leaf for one in tagged if not reach.covers(one.tag))
        return found, frozenset(moved)

    def counts(self) -> dict[int, int]:
        """Return the present number of rows by leaf."""
        found: dict[int, int] = {}
        for store in self.stores.values():
            for leaf, digest in store.leaves(0, self.grid.last)[0].digests.items():
                found[leaf] = found.get(leaf, 0) + digest.count
        return found

    def total(self) -> Digest:
        """Return the present digest of the whole table."""
        merged = Leaves()
        for store in self.stores.values():
            merged.merge(store.leaves(0, self.grid.last)[0])
        return merged.total()

    @property
    def unread(self) -> int:
        """Return the number of records that could not be read."""
        return sum(store.unread for store in self.stores.values())

    def broken(self) -> tuple[int, int, int] | None:
        """Return the changes that are marked as exact and are not: their number, and partition and offset of the newest
        one in the first partition that has any. None if there are none."""
        found = [(number, one) for number, store in self.stores.items() if (one := store.broken)]
        return (sum(one.number for _, one in found), found[0][0], found[0][1].offset) if found else None


class TopologyLedger:
    """The ledgers of all tables of a topology, by `naming.change_topic`. `open_store(name, partition, shape)` opens the
    store of a partition.

    `masked(schema)` returns the masked columns of a table. `routing` gives the topics in Kafka, to which the ends of
    positions belong. `lag` is `log.min_compaction_lag` in seconds: exact changes are checked if they are younger.
    """

    def __init__(
        self,
        open_store: Callable[[str, int, str], PartitionStore],
        masked: Callable[[TableSchema], Sequence[str]],
        routing: Routing | None = None,
        lag: float = WINDOW_MS / 1000,
    ) -> None:
        self._open, self._masked, self._routing = open_store, masked, routing
        self._checked_ms = min(WINDOW_MS, int(lag * 1000))
        self._sharing: dict[str, dict[str, PartitionLedger]] = {}  # topic in Kafka → the ledgers of its tables
        # of topics with several tables: stores that have only the next offset, and the offsets at the last `_catch_up`
        self._marks, self._caught_up = dict[Partition, PartitionStore](), dict[Partition, int]()
        self.tables: dict[TableId, PartitionLedger] = {}
        self.without: dict[TableId, str] = {}  # tables without a digest, with the reason
        self._topics: dict[str, PartitionLedger] = {}
        self._ids: dict[str, str] = {}
        self._waiting: dict[str, list[SourceReach]] = {}
        self.reached: dict[str, SourceReach] = {}

    def identify(self, topic: str, topic_id: str) -> None:
        """Set the id of a topic in Kafka, before its partitions are assigned.

        Stores of a topic that had another id are emptied when they are opened. After a loss of Kafka, a new topic of
        the same name may have more records than the former one."""
        self._ids[topic] = topic_id
        for one in self._sharing.get(topic, {}).values():
            one.topic_id = topic_id

    def knows(self, name: str) -> bool:
        """Return whether there is a ledger of a table, given by its `naming.change_topic`."""
        return name in self._topics

    def schema(self, schema: TableSchema, name: str) -> list[Partition]:
        """Set the newest schema of a table. Returns the partitions that must be read again from the beginning: all
        open ones if the text of rows changed, otherwise none. A table without a digest goes to `without`."""
        what, topic = covered(schema, self._masked(schema)), self._routing.topic(name) if self._routing else name
        if what.without_grid:
            self.without[schema.table_id] = what.without_grid
            self._topics.pop(name, None)
            self._sharing.get(topic, {}).pop(name, None)
            self.tables.pop(schema.table_id, None)
            return []
        self.without.pop(schema.table_id, None)
        known = self.tables.get(schema.table_id)
        partition_ledger = PartitionLedger(
            schema=schema,
            name=name,
            topic=topic,
            covered=what,
            grid=grid_of(schema),
            topic_id=self._ids.get(topic, ""),
        )
        self.tables[schema.table_id] = self._topics[name] = partition_ledger
        self._sharing.setdefault(topic, {})[name] = partition_ledger
        if known is None:
            return []
        for number, store in known.stores.items():
            self._keep(partition_ledger, number, store)
        if known.covered.shape == what.shape:
            return []
        for store in known.stores.values():
            store.begin_again(partition_ledger.shape)
        return [(name, number) for number in known.stores]

    def assigned(self, name: str, partition: int) -> int:
        """Open the store of a partition, and return the offset to read from."""
        partition_ledger = self._topics[name]
        store = self._open(name, partition, partition_ledger.shape)
        self._keep(partition_ledger, partition, store)
        return store.next_offset

    def next_offset(self, name: str, partition: int) -> int:
        """Return the offset from which on a partition has not been read."""
        partition_ledger = self._topics.get(name)
        stores = {} if partition_ledger is None else partition_ledger.stores
        return stores[partition].next_offset if partition in stores else 0

    def read_to(self, topic: str, partition: int, offset: int) -> None:
        """Note that the records of all tables before an offset of their common topic in Kafka were applied."""
        self._mark(topic, partition).seen(offset)
        if offset > self._caught_up.get((topic, partition), 0) + _MOST_SCANNED:
            self._catch_up(topic, partition, offset)

    def rewound(self, topic: str, partition: int, offset: int) -> None:
        """Note that a partition of several tables is read again from an offset, because one of them needs it."""
        mark = self._mark(topic, partition)
        mark.begin_again(self._mark_shape(topic))
        mark.seen(offset)

    def _catch_up(self, topic: str, partition: int, offset: int) -> None:
        """Note in the stores of all tables how far they were read, so that a restart reads few records again."""
        self._caught_up[topic, partition] = offset
        for one in self._sharing.get(topic, {}).values():
            if partition in one.stores:
                one.stores[partition].seen(offset)

    def _mark(self, topic: str, partition: int) -> PartitionStore:
        if (topic, partition) not in self._marks:
            self._marks[topic, partition] = self._open(topic, partition, self._mark_shape(topic))
        return self._marks[topic, partition]

    def _mark_shape(self, topic: str) -> str:
        return _shape("offset", self._ids.get(topic, ""))

    def lost(self, name: str, partition: int) -> None:
        """Reset a partition whose topic was recreated, so that it is read from the beginning."""
        partition_ledger = self._topics[name]
        partition_ledger.stores[partition].begin_again(partition_ledger.shape)

    def records(
        self, name: str, partition: int, records: Sequence[LogRecord], next_offset: int, now_ms: int
    ) -> int:  # fmt: skip
        """Apply records of a table's partition, in order. Returns the number of records that changed a row."""
        partition_ledger = self._topics.get(name)
        return (
            partition_ledger.folds[partition].fold(records, next_offset, now_ms)
            if partition_ledger and partition in partition_ledger.folds
            else 0
        )

    def ended(self, name: str, partition: int, offset: int) -> None:
        """Note the end offset of a partition that has been read to its end."""
        partition_ledger = self._topics.get(name)
        if partition_ledger is not None and partition in partition_ledger.stores:
            partition_ledger.stores[partition].seen(offset)

    def position(self, found: SourceReach) -> None:
        """Add a committed position of a source. Records before it may not have been read yet."""
        waiting = self._waiting.setdefault(found.source, [])
        waiting.append(found)
        if len(waiting) > _MOST_WAITING:
            del waiting[: _MOST_WAITING // 2]

    def update_reached(self) -> None:
        """Update `reached`: for each source the last position before which all records have been read."""
        for source, waiting in self._waiting.items():
            done = 0
            while done < len(waiting) and self._covers(waiting[done].ends):
                done += 1
            if done:
                self.reached[source] = waiting[done - 1]
                del waiting[:done]

    def _covers(self, ends: Mapping[Partition, int]) -> bool:
        for (topic, partition), end in ends.items():
            tables = self._sharing.get(topic, {}) if end else {}
            if tables and topic not in tables:  # a topic of several tables
                if self._mark(topic, partition).next_offset < end:
                    return False
                continue
            for one in tables.values():
                if partition not in one.stores or one.stores[partition].next_offset < end:
                    return False
        return True

    def _keep(self, partition_ledger: PartitionLedger, partition: int, store: PartitionStore) -> None:
        partition_ledger.stores[partition] = store
        partition_ledger.folds[partition] = Fold(
            store, partition_ledger.covered, partition_ledger.grid, tag_of, self._checked_ms
        )


def _shape(covered: str, topic_id: str) -> str:
    return f"{covered} of {topic_id}" if topic_id else covered


def read_reach(value: Mapping[str, Any]) -> SourceReach:
    """Decode a record of `…positions`. Raises KeyError, TypeError or ValueError if it is malformed."""
    if value["format"] != 1:
        raise ValueError(f"a position of format {value['format']}")
    position = value["position"]
    return SourceReach(
        source=value["source"],
        position=Position(
            file=position["file"], pos=position["pos"], gtid_set=position["gtid_set"], sequence=position["sequence"]
        ),
        ends={(t, int(p)): int(end) for t, ends in value["end_offsets"].items() for p, end in ends.items()},
        unknown=_unknown(value.get("state", {})),
        signals=value.get("state", {}).get("signals") or 0,
    )


def _unknown(state: Mapping[str, Any]) -> dict[str, str]:
    """Return the tables whose topics are incomplete according to a checkpoint's state, each with the most serious
    reason."""
    repairs = state.get("mends", {})
    again = [*repairs.get("tables", {}), *repairs.get("again", {})]
    return {
        **dict.fromkeys(again, "rows that the source's log does not contain are being read"),
        **dict.fromkeys(state.get("partial", ()), "its log does not contain all of its rows (`where`, or no snapshot)"),
        **dict.fromkeys(state.get("snapshots", {}), "its snapshot is running"),
        **dict.fromkeys(state.get("kept", {}), "some of its rows are in quarantine: `tailorbird dead-letters list`"),
    }
