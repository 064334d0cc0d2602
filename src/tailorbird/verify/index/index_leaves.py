"""Leaves of an index and its table: ranges of row keys with a digest, kept between two comparisons.

A leaf has the number of its rows, the XOR of their hashes, and the sum of their versions. A row's hash covers its id
and version. HBase's side of a leaf is computed from its rows once, and kept. Solr computes number and sum itself, for
nodes of neighbouring leaves first, then for the leaves of the nodes that differ.

A leaf is read again, row by row at both ends, if one of these holds:

    it was not equal when it was last read
    HBase has a cell or a delete marker with a later timestamp in it
    its region may have had a major compaction, and its rows have another digest now
    Solr has a document in it that was written later, or shortly before
    Solr's number of documents, or the sum of their versions, is not that of its rows

Leaves are cut by number of rows, so their borders are not fixed: the first leaf begins at the least id, each other one
at the id of a row, and the last one has no end."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from cdc.merkle.canonical import hash_of
from cdc.merkle.tree import NOTHING, Digest, delta
from indexer.index.mapping import Document
from tailorbird.verify.index.index_stage import FarDocuments, NearRows, RowDocument, first_sight

LEAF = 64  # rows of a new leaf
# Solr adds doubles: sums below 2^53 are exact, so a node has at most about 2,400 rows.
EXACT = 2**53
_FAN = 16
# Timestamps of two batches differ by 2 ms at least: deletes have the first one, puts the second.
_NEXT_BATCH = 2


class IdRange(NamedTuple):
    """Ids from `start` (included) to `stop` (excluded); None: no end."""

    start: str
    stop: str | None


class RangeSum(NamedTuple):
    """The number of documents in a range, and the sum of their versions: what Solr can compute of a leaf."""

    rows: int
    versions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexLeaf:
    """One leaf from id `start` on. An `open` leaf was not equal when it was read, so the next check reads it again."""

    start: str
    digest: Digest = NOTHING
    versions: int = 0
    open: bool = False

    @property
    def sum(self) -> RangeSum:
        """Return what Solr must compute for the leaf."""
        return RangeSum(self.digest.count, self.versions)


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexLeaves:
    """All leaves of one index, in order, and the state at which they were read.

    - `cut`: batch timestamp (ms). All earlier writes of the join were read. `newest`: Solr's greatest `_version_`.
    - `store_files`: by region of the table the names of its files.
    - `identity`: what the leaves depend on, such as the table's layout and the index's collection."""

    leaves: tuple[IndexLeaf, ...]
    cut: int
    newest: int
    store_files: Mapping[str, Sequence[str]] = field(default_factory=dict)
    identity: Mapping[str, str] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        """Return the number of rows."""
        return sum(leaf.digest.count for leaf in self.leaves)

    def range(self, first: int, last: int | None = None) -> IdRange:
        """Return the ids of the leaf with a number, or of several neighbouring ones."""
        following = (first if last is None else last) + 1
        stop = self.leaves[following].start if following < len(self.leaves) else None
        return IdRange(self.leaves[first].start, stop)

    def holding(self, ids: Iterable[str]) -> set[int]:
        """Return the numbers of the leaves that contain these ids."""
        starts = [leaf.start for leaf in self.leaves]
        return {max(bisect_right(starts, key) - 1, 0) for key in ids}


@dataclass(frozen=True, slots=True, kw_only=True)
class RowChanges:
    """The ids of rows that were written or deleted, and the ranges in which deletes may be missing.

    `store_files` is for the next call."""

    ids: Collection[str]
    unknown: Sequence[IdRange]
    store_files: Mapping[str, Sequence[str]]


class LeafRows(NearRows, Protocol):
    """The near end, with the rows of some ascending ranges, and the changes since an HBase timestamp.

    `store_files` returns what `changed` needs the next time. Empty: unknown, so all rows are counted then. `expiry`
    returns after how many seconds cells expire, or 0."""

    def within(self, ranges: Sequence[IdRange]) -> Iterator[tuple[str, RowDocument]]: ...
    def versions_between(self, ids: IdRange) -> Iterator[tuple[str, int]]: ...
    def changed(self, timestamp: int, known: Mapping[str, Sequence[str]]) -> RowChanges: ...
    def store_files(self) -> Mapping[str, Sequence[str]]: ...
    def expiry(self) -> int: ...


class LeafDocuments(FarDocuments, Protocol):
    """The far end, with the documents of some ascending ranges.

    `sums` computes the number and the sum of versions of each range in Solr. `newest` returns the greatest
    `_version_`, `rewritten` the ids of documents with a greater one. `late`: a write may become visible after one
    whose `_version_` is greater by this much."""

    @property
    def late(self) -> int: ...
    def within(self, ranges: Sequence[IdRange]) -> Iterator[tuple[str, Document]]: ...
    def sums(self, ranges: Sequence[IdRange]) -> Sequence[RangeSum]: ...
    def newest(self) -> int: ...
    def rewritten(self, since: int) -> Iterator[str]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadLeaves:
    """The leaves that were read `again`: their number, the ids that may differ, and all leaves as they are now.

    `compared` rows were read with their values, `counted` rows by key and version only."""

    again: int
    suspects: Sequence[str]
    leaves: tuple[IndexLeaf, ...]
    store_files: Mapping[str, Sequence[str]]
    compared: int
    counted: int


def row_digest(key: str, version: int) -> Digest:
    """Return the digest of one row."""
    return delta(None, hash_of(f"{key} {version}"))


class LeafBuilder:
    """Builds the leaves of a range from its rows, in order. The first leaf begins at `start`."""

    def __init__(self, start: str = "", *, size: int = LEAF) -> None:
        self._size, self._made = size, list[IndexLeaf]()
        self._start, self._open = start, False
        self._count = self._bits = self._versions = 0

    def add(self, key: str, version: int | None, *, agrees: bool) -> None:
        """Add a row, or with version None a document without a row. `agrees`: both ends are equal."""
        if version is not None:
            if self._count >= self._size:
                self._made.append(self._leaf())
                self._begin(key)
            self._count += 1
            self._bits ^= row_digest(key, version).bits
            self._versions += version
        self._open = self._open or not agrees

    def built(self) -> list[IndexLeaf]:
        """Return the leaves, at least one."""
        return [*self._made, self._leaf()]

    def _begin(self, start: str) -> None:
        self._start, self._open = start, False
        self._count = self._bits = self._versions = 0

    def _leaf(self) -> IndexLeaf:
        digest = Digest(self._count, self._bits)
        return IndexLeaf(start=self._start, digest=digest, versions=self._versions, open=self._open)


class RunBuilders:
    """Builds the leaves of several ascending ranges from their rows, in order."""

    def __init__(self, ranges: Sequence[IdRange]) -> None:
        self._builders = [LeafBuilder(one.start) for one in ranges]
        self._starts, self._at = [one.start for one in ranges], 0

    def add(self, key: str, version: int | None, *, agrees: bool) -> None:
        """Add a row to the range that it belongs to, as `LeafBuilder.add` does."""
        while self._at + 1 < len(self._starts) and key >= self._starts[self._at + 1]:
            self._at += 1
        self._builders[self._at].add(key, version, agrees=agrees)

    def built(self) -> list[list[IndexLeaf]]:
        """Return the leaves of each range."""
        return [builder.built() for builder in self._builders]


def rebuilt(known: IndexLeaves, runs: Mapping[int, tuple[int, Sequence[IndexLeaf]]]) -> tuple[IndexLeaf, ...]:
    """Return the leaves after some were read again: `runs` gives by first leaf the last one, and the new leaves."""
    leaves, at = list[IndexLeaf](), 0
    while at < len(known.leaves):
        if at in runs:
            last, made = runs[at]
            # an empty range becomes a part of the leaf before it
            leaves += [leaf for leaf in made if leaf.digest.count or leaf.open or not leaves]
            at = last + 1
        else:
            leaves.append(known.leaves[at])
            at += 1
    return tuple(leaves)


def runs_of(numbers: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Yield runs of consecutive numbers, as (first, last), in order."""
    first = last = -2
    for number in sorted(numbers):
        if number == last + 1:
            last = number
            continue
        if last >= 0:
            yield first, last
        first = last = number
    if last >= 0:
        yield first, last


def differing_leaves(
    known: IndexLeaves, skipped: set[int], sums: Callable[[Sequence[IdRange]], Sequence[RangeSum]]
) -> set[int]:
    """Return the leaves whose sums in Solr differ from the known ones, except `skipped` leaves.

    Asks `sums` for nodes of neighbouring leaves, then for the leaves of those that differ."""
    nodes = list(_nodes(known, skipped))
    found = sums([known.range(first, last) for first, last in nodes])
    below: list[int] = []
    for (first, last), has in zip(nodes, found, strict=True):
        if has != _sum(known.leaves[first : last + 1]):
            below += range(first, last + 1)
    found = sums([known.range(number) for number in below]) if below else ()
    return {number for number, has in zip(below, found, strict=True) if has != known.leaves[number].sum}


def _nodes(known: IndexLeaves, skipped: set[int]) -> Iterator[tuple[int, int]]:
    first, versions = 0, 0
    for number, leaf in enumerate(known.leaves):
        full = number - first == _FAN or versions + leaf.versions >= EXACT
        if number > first and (full or number in skipped):
            yield first, number - 1
            first, versions = number, 0
        if number in skipped:
            first, versions = number + 1, 0
        else:
            versions += leaf.versions
    if first < len(known.leaves):
        yield first, len(known.leaves) - 1


def _sum(leaves: Iterable[IndexLeaf]) -> RangeSum:
    rows = versions = 0
    for leaf in leaves:
        rows, versions = rows + leaf.digest.count, versions + leaf.versions
    return RangeSum(rows, versions)


def read_changed(known: IndexLeaves, rows: LeafRows, shown: LeafDocuments) -> ReadLeaves:
    """Read the leaves again that may have changed since they were read.

    Raises Retriable while a server is unavailable."""
    changes = rows.changed(known.cut + _NEXT_BATCH, known.store_files)
    # Solr's sums of timestamps that are thousands of years away are not exact
    wanted = {number for number, leaf in enumerate(known.leaves) if leaf.open or leaf.versions >= EXACT}
    wanted |= known.holding(changes.ids) | known.holding(shown.rewritten(known.newest - shown.late))
    counted = 0
    for first, last in runs_of(_touched(known, changes.unknown) - wanted):
        number, moved = _counted(known, rows, first, last)
        counted, wanted = counted + number, wanted | moved
    wanted |= differing_leaves(known, wanted, shown.sums)
    runs = list(runs_of(wanted))
    ranges = [known.range(first, last) for first, last in runs]
    builders = RunBuilders(ranges)
    suspects, compared = list[str](), 0
    for key, agrees in first_sight(rows.within(ranges), shown.within(ranges), builders):
        compared += 1
        if not agrees:
            suspects.append(key)
    made = dict(zip(runs, builders.built(), strict=True))
    return ReadLeaves(
        again=len(wanted),
        suspects=suspects,
        leaves=rebuilt(known, {first: (last, leaves) for (first, last), leaves in made.items()}),
        store_files=changes.store_files,
        compared=compared,
        counted=counted,
    )


def _counted(known: IndexLeaves, rows: LeafRows, first: int, last: int) -> tuple[int, set[int]]:
    """Count the rows of neighbouring leaves by key and version. Return their number, and the leaves whose digest
    has changed."""
    count, at, moved = 0, first, set[int]()
    digest: Digest = NOTHING
    for key, version in rows.versions_between(known.range(first, last)):
        while at < last and key >= known.leaves[at + 1].start:
            if digest != known.leaves[at].digest:
                moved.add(at)
            at, digest = at + 1, NOTHING
        digest += row_digest(key, version)
        count += 1
    for number in range(at, last + 1):
        if digest != known.leaves[number].digest:
            moved.add(number)
        digest = NOTHING
    return count, moved


def _touched(known: IndexLeaves, ranges: Sequence[IdRange]) -> set[int]:
    """Return the leaves that share ids with the ranges."""
    starts, touched = [leaf.start for leaf in known.leaves], set[int]()
    for start, stop in ranges:
        [first] = known.holding([start])
        last = len(starts) - 1 if stop is None else max(bisect_left(starts, stop) - 1, first)
        touched.update(range(first, last + 1))
    return touched
