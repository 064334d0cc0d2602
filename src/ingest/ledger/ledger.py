"""The ledger of a topology: which tables it keeps, up to which position of each source; pure over its stores.

It is told schemas, positions and the records of change topics in whichever order they are read. A schema that changes
what a table's digest is made of makes its partitions begin anew: every row is hashed again by its last record, with the
defaults of columns that came later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from cdc.merkle.canonical import Covered, covered
from cdc.merkle.leaves import Grid, grid_of
from cdc.merkle.tree import Digest, Leaves
from cdc.model.event import Position
from cdc.model.schema import TableId, TableSchema
from ingest.ledger.fold import Fold, HeldRow, LogRecord, RowPlace, RowStore, Tagged
from ingest.ledger.places import Reach, as_of, tag_of

Partition = tuple[str, int]  # topic, partition
_MOST_WAITING = 4_000  # positions that one remembers while the log is read up to them


class PartitionStore(RowStore, Protocol):
    """A partition's store, as the ledger uses it."""

    @property
    def next_offset(self) -> int: ...

    @property
    def unread(self) -> int: ...

    def begin_again(self, shape: str) -> None:
        """Forget everything."""

    def seen(self, next_offset: int) -> None:
        """Read on behind what holds no records."""

    def leaves(self, first: int, last: int) -> tuple[Leaves, list[Tagged]]:
        """Leaves now, and what changed them lately."""

    def rows_of(self, leaf: int) -> tuple[list[tuple[bytes, HeldRow]], list[Tagged]]:
        """A leaf's rows by their records' keys, and what changed it lately."""

    def rows_at(self, places: Iterable[RowPlace]) -> tuple[dict[RowPlace, HeldRow], list[Tagged]]:
        """The rows at these places, and what changed the table lately."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceReach:
    """A committed position of a source: `ends` are the offsets behind all that it covers, by topic and partition.

    `unknown`: tables (`database.table`) whose log does not hold what their source does there, and why; `signals`: the
    offset up to which its capture has obeyed signals.
    """

    source: str
    position: Position
    ends: Mapping[Partition, int]
    unknown: Mapping[str, str] = field(default_factory=dict)
    signals: int = 0


@dataclass(slots=True)
class PartitionLedger:
    """One table's ledger."""

    schema: TableSchema
    topic: str
    covered: Covered
    grid: Grid
    stores: dict[int, PartitionStore] = field(default_factory=dict)
    folds: dict[int, Fold] = field(default_factory=dict)

    def as_of(self, first: int, last: int, low: Position, high: Position) -> tuple[Leaves, frozenset[int]]:
        """The leaves from `first` to `last` as of `low`, a covered position of the last ten minutes; and those that
        changed behind it up to `high`: who looked at the table between the two may have seen either."""
        merged, unsure, reaches = Leaves(), set[int](), (Reach(low), Reach(high))
        for store in self.stores.values():
            leaves, between = as_of(*store.leaves(first, last), *reaches)
            merged.merge(leaves)
            unsure |= between
        return merged, frozenset(unsure)

    def rows_of(self, leaf: int, low: Position) -> tuple[dict[bytes, tuple[int, HeldRow]], bool]:
        """The rows of a leaf now, by their records' keys, each with its partition; and whether the leaf has changed
        since a position."""
        found, reach, moved = dict[bytes, tuple[int, HeldRow]](), Reach(low), False
        for number, store in self.stores.items():
            rows, tagged = store.rows_of(leaf)
            found |= {key: (number, held) for key, held in rows}
            moved = moved or any(not reach.covers(one.tag) for one in tagged)
        return found, moved

    def rows_at(
        self, places: Sequence[RowPlace], low: Position
    ) -> tuple[dict[bytes, tuple[int, HeldRow]], frozenset[int]]:
        """The rows at these places now, by their records' keys, each with its partition; and the leaves that changed
        since a position."""
        found, reach, moved = dict[bytes, tuple[int, HeldRow]](), Reach(low), set[int]()
        for number, store in self.stores.items():
            rows, tagged = store.rows_at(places)
            found |= {place.key: (number, held) for place, held in rows.items()}
            moved.update(one.leaf for one in tagged if not reach.covers(one.tag))
        return found, frozenset(moved)

    def counts(self) -> dict[int, int]:
        """How many rows the ledger has in each leaf now."""
        found: dict[int, int] = {}
        for store in self.stores.values():
            for leaf, digest in store.leaves(0, self.grid.last)[0].digests.items():
                found[leaf] = found.get(leaf, 0) + digest.count
        return found

    def total(self) -> Digest:
        """The digest of the whole table as the ledger has it now."""
        merged = Leaves()
        for store in self.stores.values():
            merged.merge(store.leaves(0, self.grid.last)[0])
        return merged.total()

    @property
    def unread(self) -> int:
        """Records that were not understood."""
        return sum(store.unread for store in self.stores.values())


class TopologyLedger:
    """All tables' books. `open_store(topic, partition, shape)` opens what was kept of a partition."""

    def __init__(
        self, open_store: Callable[[str, int, str], PartitionStore], masked: Callable[[TableSchema], Sequence[str]]
    ) -> None:
        self._open, self._masked = open_store, masked
        self.tables: dict[TableId, PartitionLedger] = {}
        self.without: dict[TableId, str] = {}  # tables that have no digest, and why
        self._topics: dict[str, PartitionLedger] = {}
        self._waiting: dict[str, list[SourceReach]] = {}
        self.reached: dict[str, SourceReach] = {}

    def schema(self, schema: TableSchema, topic: str) -> list[Partition]:
        """A table's newest schema. The partitions that must be read again from their beginnings."""
        what = covered(schema, self._masked(schema))
        if what.without_grid:
            self.without[schema.table_id] = what.without_grid
            self._topics.pop(topic, None)
            self.tables.pop(schema.table_id, None)
            return []
        self.without.pop(schema.table_id, None)
        known = self.tables.get(schema.table_id)
        partition_ledger = PartitionLedger(schema=schema, topic=topic, covered=what, grid=grid_of(schema))
        self.tables[schema.table_id] = self._topics[topic] = partition_ledger
        if known is None:
            return []
        for number, store in known.stores.items():
            self._keep(partition_ledger, number, store)
        if known.covered.shape == what.shape:
            return []
        for store in known.stores.values():
            store.begin_again(what.shape)
        return [(topic, number) for number in known.stores]

    def assigned(self, topic: str, partition: int) -> int:
        """A partition of a table's topic is there; the offset to read it from."""
        partition_ledger = self._topics[topic]
        store = self._open(topic, partition, partition_ledger.covered.shape)
        self._keep(partition_ledger, partition, store)
        return store.next_offset

    def lost(self, topic: str, partition: int) -> None:
        """The partition is not the one that was read: it was made anew, and is read from its beginning."""
        partition_ledger = self._topics[topic]
        partition_ledger.stores[partition].begin_again(partition_ledger.covered.shape)

    def records(
        self, topic: str, partition: int, records: Sequence[LogRecord], next_offset: int, now_ms: int
    ) -> int:  # fmt: skip
        """Records of a partition, in order; how many changed a row."""
        partition_ledger = self._topics.get(topic)
        return (
            partition_ledger.folds[partition].fold(records, next_offset, now_ms)
            if partition_ledger and partition in partition_ledger.folds
            else 0
        )

    def ended(self, topic: str, partition: int, offset: int) -> None:
        """A partition is read up to an offset, behind which nothing is yet."""
        partition_ledger = self._topics.get(topic)
        if partition_ledger is not None and partition in partition_ledger.stores:
            partition_ledger.stores[partition].seen(offset)

    def position(self, found: SourceReach) -> None:
        """A position of a source was committed; what it covers may still have to be read."""
        waiting = self._waiting.setdefault(found.source, [])
        waiting.append(found)
        if len(waiting) > _MOST_WAITING:
            del waiting[: _MOST_WAITING // 2]

    def settle(self) -> None:
        """Look which positions are covered by what was read: `reached` has the last one of each source."""
        for source, waiting in self._waiting.items():
            done = 0
            while done < len(waiting) and self._covers(waiting[done].ends):
                done += 1
            if done:
                self.reached[source] = waiting[done - 1]
                del waiting[:done]

    def _covers(self, ends: Mapping[Partition, int]) -> bool:
        for (topic, partition), end in ends.items():
            partition_ledger = self._topics.get(topic)
            if partition_ledger is not None and end and (
                partition not in partition_ledger.stores or partition_ledger.stores[partition].next_offset < end
            ):  # fmt: skip
                return False
        return True

    @staticmethod
    def _keep(partition_ledger: PartitionLedger, partition: int, store: PartitionStore) -> None:
        partition_ledger.stores[partition] = store
        partition_ledger.folds[partition] = Fold(store, partition_ledger.covered, partition_ledger.grid, tag_of)


def read_reach(value: Mapping[str, Any]) -> SourceReach:
    """A record of `…positions`; KeyError, TypeError or ValueError for another's."""
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
    """What a capture's state says of tables of which the log does not tell all, the worst last."""
    repairs = state.get("mends", {})
    again = [*repairs.get("tables", {}), *repairs.get("again", {})]
    return {
        **dict.fromkeys(again, "rows that the source's log did not tell are being read"),
        **dict.fromkeys(state.get("partial", ()), "its log does not hold all of its rows (`where`, or no snapshot)"),
        **dict.fromkeys(state.get("snapshots", {}), "a snapshot of it is under way"),
        **dict.fromkeys(state.get("kept", {}), "rows of it are in quarantine: `tailorbird dead-letters list`"),
    }
