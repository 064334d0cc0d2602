"""Compare one table at its source with its topic, leaf by leaf. A *leaf* is a range of keys; its digest covers its
rows.

The digests at the source are read in short transactions. Each has two positions: its snapshot contains everything up
to `low`, and nothing after `high`. The ledger has the digests of the topic.

- If no change between `low` and `high` concerns a leaf, both sides have the leaf as of `low`, and its digests must
  be equal.
- Other leaves are compared again, in rounds.
- If digests differ, or a leaf changes in every round, its rows are read from both sides and compared one by one.
- A row that changed after `low` is compared again. A row that changes in every round is moving, not different."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

import orjson

from cdc.merkle.canonical import RowText, form_of, left_out
from cdc.merkle.leaves import LeafOf
from cdc.merkle.tree import Digest, Leaves
from cdc.model.event import Position, Row
from cdc.model.schema import TableSchema
from cdc.model.types import Canonical
from ingest.events.log_events import Image, RefusedImage
from ingest.ledger.fold import HeldRow, RowPlace
from ingest.ledger.ledger import PartitionLedger
from ingest.ledger.places import Reach
from tailorbird.verify.findings import MOST_FINDINGS, Finding, Kind, Verdict
from tailorbird.verify.log.spans import ComparedSpan, Span, spans_of
from tailorbird.verify.positions import place_reported

T = TypeVar("T")
_LOOKS = 4  # rounds for a leaf's digest, and then for its rows
_MOST_LEAVES = 500  # leaves of a table without ranges, read in one pass
_FEW = 256  # leaves per transaction
_KEYS = 4_096  # rows read by key per transaction


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceReading:
    """Data that one transaction of the source has read, between the positions `low` and `high`.

    `whole` is one digest of all requested rows, `digests` are those by leaf, `images` are rows."""

    low: Position
    high: Position
    whole: Digest | None = None
    digests: Mapping[int, Digest] = field(default_factory=dict)
    images: Sequence[Image] = ()


class NearTable(Protocol):
    """The table at its source. Raises Retriable while the server is unavailable."""

    def wholes(self, spans: Iterable[Span]) -> Iterator[tuple[Span, SourceReading]]:
        """Yield one digest per span (of leaves), in order. This is less work than a digest per leaf.

        The implementation may prefetch. The caller makes no other request until the iterator ends."""

    def digests(self, spans: Sequence[Span]) -> SourceReading:
        """Read the digests of the leaves of these spans. Leaves without rows are missing."""

    def rows(self, leaves: Sequence[int]) -> SourceReading:
        """Read the rows of these leaves (key ranges)."""

    def keyed(self, keys: Sequence[dict[str, Canonical]]) -> SourceReading:
        """Read the rows with these keys. The result may include rows whose keys the source's collation treats as
        equal."""


class NearSource(Protocol):
    """The current tables of one source."""

    def table(self, partition_ledger: PartitionLedger) -> NearTable | str:
        """Return the table of a ledger, or the reason why it cannot be compared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogImage:
    """A record of the topic: its row (None for a delete), its source position (`tag`), and its offset as text
    (`reported`)."""

    row: Row | None
    tag: str
    reported: str


class FarTable(Protocol):
    """The table in Kafka. Raises Retriable while Kafka is unavailable."""

    def covers(self, position: Position, *, wait: bool) -> bool:
        """Return whether the ledger has reached a position. With `wait`, wait for a limited time."""

    def record(self, partition: int, offset: int) -> LogImage | None:
        """Return the record at an offset. None if compaction has removed it."""


class _Undecided(Exception):
    """Raised for a row that must be compared again."""


@dataclass(slots=True)
class LogStage:
    """One comparison of one table. `verdict` compares all rows, `look` only the rows with some keys.

    `pause` waits between two rounds, `clock` returns seconds, `reported` receives the numbers of compared rows. The
    spans in `settled` are skipped. `settle` receives each span that is equal. At the end `keys` are the keys of
    differing rows."""

    partition_ledger: PartitionLedger
    source: NearTable
    log: FarTable
    pause: Callable[[], object]
    clock: Callable[[], float]
    reported: Callable[[int], object] = lambda rows: None
    settled: Sequence[ComparedSpan] = ()
    settle: Callable[[ComparedSpan], object] = lambda settled: None
    keys: list[bytes] = field(default_factory=list)
    _read: int = 0
    _rows: int = 0
    _leaves: int = 0
    _cut: str = ""
    _findings: list[Finding] = field(default_factory=list)
    _moving: int = 0
    _refused: int = 0
    _lost: int = 0
    _unknown: list[str] = field(default_factory=list)
    _text: RowText = field(init=False)
    _leaf: LeafOf = field(init=False)

    def __post_init__(self) -> None:
        self._text, self._leaf = (
            RowText(self.partition_ledger.covered.forms),
            LeafOf(self.partition_ledger.grid, self.partition_ledger.covered),
        )

    def verdict(self) -> Verdict:
        """Compare all rows of the table, and return the verdict."""
        began, suspects = self.clock(), set[int]()
        spans = spans_of(self.partition_ledger, self.settled)
        self._rows, self._leaves = sum(one.rows for one in self.settled), sum(one.leaves for one in self.settled)
        if self.partition_ledger.grid.ranged:
            spans = [span for span, seen in self._seen(self.source.wholes(spans)) if not self._agrees(span, seen)]
        for span, seen in self._seen((span, self.source.digests([span])) for span in spans):
            suspects |= self._unequal(span, seen)
            if not self.partition_ledger.grid.ranged:
                self._covered(seen, sum(digest.count for digest in seen.digests.values()), len(seen.digests))
        if not self._unknown:
            self._narrow(suspects)
        return self._reported(self.clock() - began)

    def look(self, keys: Collection[bytes]) -> Verdict:
        """Compare only the rows with these keys, given as the keys of their Kafka records."""
        began, left = self.clock(), sorted(keys)
        for number in range(_LOOKS):
            again = set[bytes]()
            for some in _some(left, _KEYS):
                named = [orjson.loads(key) for key in some]
                seen = self.source.keyed(named)
                if not self._reached(seen):
                    return self._reported(self.clock() - began)
                if number == 0:
                    self._covered(seen, len(some), 0)
                images = {key: image for _, key, image in self._keyed(seen.images)}
                places = [RowPlace(self._leaf(name), key) for name, key in zip(named, some, strict=True)]
                held, moved = self.partition_ledger.rows_at(places, seen.low)
                again |= self._row_by_row(some, images, held, seen.low, moved)
            if not again:
                break
            left = sorted(again)
            self.pause()
        else:
            self._moving += len(left)
        return self._reported(self.clock() - began)

    def _seen(self, shown: Iterable[tuple[Span, SourceReading]]) -> Iterator[tuple[Span, SourceReading]]:
        """Yield the reading of each span once the ledger covers it, while the source reads the next ones."""
        waiting: list[tuple[Span, SourceReading]] = []
        for one in shown:
            waiting.append(one)
            while waiting and self.log.covers(waiting[0][1].high, wait=False):
                yield waiting.pop(0)
        for span, seen in waiting:
            if not self._reached(seen):
                return
            yield span, seen

    def _reached(self, seen: SourceReading) -> bool:
        if self.log.covers(seen.high, wait=True):
            return True
        if not self._unknown:
            self._unknown.append(f"the log does not reach {place_reported(seen.high)}: is the capture running?")
        return False

    def _agrees(self, span: Span, seen: SourceReading) -> bool:
        """Return whether a span is equal: no leaf changed between the positions, and both digests are the same."""
        ours, unsure = self.partition_ledger.as_of(*span, seen.low, seen.high)
        assert seen.whole is not None, "the digest of the whole span was asked for"
        self._covered(seen, seen.whole.count, len(ours.digests))
        agrees = not unsure and ours.total() == seen.whole
        if agrees:
            self.settle(ComparedSpan(*span, seen.whole.count, len(ours.digests)))
        return agrees

    def _covered(self, seen: SourceReading, rows: int, leaves: int) -> None:
        self._rows += rows
        self._leaves += leaves
        self._cut = place_reported(seen.low)
        self.reported(self._rows)

    def _unequal(self, span: Span, seen: SourceReading) -> set[int]:
        ours, unsure = self.partition_ledger.as_of(*span, seen.low, seen.high)
        theirs = Leaves(dict(seen.digests))
        return set(unsure) | {leaf for leaf in ours.digests.keys() | seen.digests.keys() if ours[leaf] != theirs[leaf]}

    def _narrow(self, suspects: set[int]) -> None:
        """Compare the digests of the leaves in unequal spans again, then the rows of those that still differ."""
        for _ in range(_LOOKS if self.partition_ledger.grid.ranged else 0):
            if not suspects:
                return
            left = set[int]()
            for some in _some(sorted(suspects), _FEW):
                seen = self.source.digests([(leaf, leaf) for leaf in some])
                if not self._reached(seen):
                    return
                for leaf in some:
                    digest = seen.digests.get(leaf)
                    left |= self._unequal((leaf, leaf), _only(seen, {leaf: digest} if digest else {}))
            if left == suspects:
                break
            suspects = left
            self.pause()
        leaves, keys = sorted(suspects), dict[int, set[bytes]]()
        for _ in range(_LOOKS):
            undecided: dict[int, set[bytes]] = {}
            for some in _some(leaves, 1 if self.partition_ledger.grid.ranged else _MOST_LEAVES):
                seen = self.source.rows(some)
                if not self._reached(seen):
                    return
                for leaf, images in _by_leaf(some, self._keyed(seen.images)).items():
                    held, moved = self.partition_ledger.rows_of(leaf, seen.low)
                    among = keys.get(leaf, images.keys() | held.keys())
                    if found := self._row_by_row(among, images, held, seen.low, frozenset({leaf} if moved else ())):
                        undecided[leaf] = found
            if not undecided:
                return
            leaves, keys = sorted(undecided), undecided
            self.pause()
        self._moving += sum(map(len, keys.values()))

    def _keyed(self, images: Iterable[Image]) -> Iterator[tuple[int, bytes, Image]]:
        names = self.partition_ledger.schema.primary_key
        for image in images:
            self._read += 1
            values = image.values if isinstance(image, RefusedImage) else image
            key = {name: values[name] for name in names}
            yield self._leaf(key), orjson.dumps(key), image

    def _row_by_row(
        self,
        keys: Iterable[bytes],
        images: Mapping[bytes, Image],
        held: Mapping[bytes, tuple[int, HeldRow]],
        low: Position,
        moved: Collection[int],
    ) -> set[bytes]:
        """Compare rows of the source (`images`, as of `low`) with rows in the ledger (`held`).

        `moved` are the leaves that changed since. Return the keys of the rows that must be compared again."""
        again, reach = set[bytes](), Reach(low)
        for key in keys:
            image = images.get(key)
            if isinstance(image, RefusedImage):
                self._refused += 1
                continue
            known = held.get(key)
            if (image is None and known is None) or (
                image is not None and known is not None and self._text.hash(image) == known[1].hash
            ):  # fmt: skip
                continue
            try:
                self._differs(key, image, known, reach, moved=self._leaf(orjson.loads(key)) in moved)
            except _Undecided:
                again.add(key)
        return again

    def _differs(
        self, key: bytes, image: Row | None, known: tuple[int, HeldRow] | None, low: Reach, *, moved: bool
    ) -> None:  # fmt: skip
        """Compare a row whose hashes differ value by value, and record a finding if it differs.

        `image` is the row at the source as of `low`, `known` the partition and the ledger's entry (None: no row).
        `moved`: its leaf changed after `low`. Raises _Undecided if the row must be compared again."""
        if known is None:
            if moved:
                raise _Undecided  # it may have been deleted after `low`
            self._find(
                key, "missing", {}, f"the log has no row of this key; the source as of {place_reported(low.position)}"
            )
            return
        record = self.log.record(known[0], known[1].offset)
        if record is None or record.row is None:
            self._lost += 1
            return
        if not low.covers(record.tag):
            raise _Undecided
        if image is None:
            self._find(key, "extra", {}, record.reported)
            return
        columns = differing_columns(self.partition_ledger.schema, image, record.row)
        if columns:
            self._find(key, "different", columns, record.reported)

    def _find(
        self, key: bytes, kind: Kind, columns: Mapping[str, tuple[Canonical, Canonical]], position: str
    ) -> None:  # fmt: skip
        self.keys.append(key)
        if len(self._findings) < MOST_FINDINGS:
            self._findings.append(
                Finding(
                    stage="log",
                    table=str(self.partition_ledger.schema.table_id),
                    key=orjson.loads(key),
                    kind=kind,
                    columns=columns,
                    position=position,
                )
            )

    def _reported(self, seconds: float) -> Verdict:
        unknown = list(self._unknown)
        if self._refused:
            unknown.append(f"{self._refused} rows cannot be published: see `tailorbird dead-letters list`")
        if self._lost:
            unknown.append(f"{self._lost} rows differ, but compaction removed their records before they were read")
        if self.partition_ledger.unread:
            unknown.append(f"{self.partition_ledger.unread} records of the topic are not changes of this table")
        if (broken := self.partition_ledger.broken()) is not None:
            count, partition, offset = broken
            unknown.append(
                f"changes that are marked as exact, but whose `before` is not the last image of the row: {count} (the "
                f"newest is record {self.partition_ledger.topic}/{partition}/{offset}). Groups of this table may be "
                "wrong until `tailorbird snapshot` has read it again; please report this fault of the capture"
            )
        return Verdict(
            stage="log",
            table=str(self.partition_ledger.schema.table_id),
            rows=self._rows,
            leaves=self._leaves,
            cut=self._cut,
            columns=self.partition_ledger.covered.names,
            findings=tuple(self._findings),
            differing=len(self.keys),
            read=self._read,
            moving=self._moving,
            unknown=tuple(unknown),
            seconds=seconds,
        )


def differing_columns(schema: TableSchema, near: Row, far: Row) -> dict[str, tuple[Canonical, Canonical]]:
    """Return the columns that differ between the row at the source and in the topic, with both values.

    A column that the record lacks, and that has no known default, is not compared."""
    found: dict[str, tuple[Canonical, Canonical]] = {}
    for column in schema.columns:
        if column.name not in near or (column.name not in far and not column.default_known):
            continue
        ours, theirs = near[column.name], far.get(column.name, column.default)
        part = None if left_out(column) else form_of(column).part()
        same = ours == theirs if part is None or ours is None or theirs is None else part(ours) == part(theirs)
        if not same:
            found[column.name] = ours, theirs
    return found


def _by_leaf(leaves: Iterable[int], rows: Iterable[tuple[int, bytes, Image]]) -> dict[int, dict[bytes, Image]]:
    found: dict[int, dict[bytes, Image]] = {leaf: {} for leaf in leaves}
    for leaf, key, image in rows:
        if leaf in found:
            found[leaf][key] = image
    return found


def _only(seen: SourceReading, digests: Mapping[int, Digest]) -> SourceReading:
    return SourceReading(low=seen.low, high=seen.high, digests=digests)


def _some(all_: Sequence[T], most: int) -> Iterator[list[T]]:
    for begin in range(0, len(all_), most):
        yield list(all_[begin : begin + most])
