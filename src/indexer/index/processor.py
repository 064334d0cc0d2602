"""Index one batch of edits: merge the cells of each row, map rows to documents, post them, then post the barriers.

When `process` returns, Solr or the dead-letter topic has every row of the batch, and Solr has every barrier. If
`process` raises, Solr may have a part of the batch. HBase then sends the batch again. Solr's fence (see
docs/glossary.md) makes the repeat harmless."""

from __future__ import annotations

import contextlib
import math
import struct
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Protocol

from cdc.model.errors import Fatal, Retriable, Skippable, TailorbirdError
from cdc.stored import fields
from cdc.stored.cells import BARRIER, is_barrier, layout_id_of, load_barrier
from cdc.stored.layout import Layout
from indexer.index.collapse import RowChange, collapse
from indexer.index.mapping import LATER_FIELDS, Document, Field, Mapper, barrier_document, tombstone
from indexer.peer.peer import Edits
from indexer.peer.wire import PUT, Write

CHUNK_DOCUMENTS = 1000
# Estimated from the cells' bytes: JSON and field names about triple them in memory.
CHUNK_BYTES = 4 << 20
# Cells merged at a time. A batch may contain a million. As objects they would take twenty times their size on the wire.
WINDOW_CELLS = 40_000
# Chunks of one batch that are being posted while the next one is decoded and mapped.
_POSTS = 2
EARLY = (
    "its HBase timestamp {} is in the future by more than `hbase.clock_tolerance`, and would hide all later changes: "
    "check the clocks of the machines"
)
# Abandoned batches whose progress is remembered; a region server has one running batch per region.
_UNFINISHED = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """A row that could not be indexed. It has the cells and the reason, for inspection and for a later retry."""

    row: bytes
    version: int
    cells: dict[bytes, bytes]
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedDocument:
    """A document that Solr refused for its content (HTTP 400): its index in the posted list, and Solr's reason."""

    position: int
    reason: str


@dataclass(slots=True, kw_only=True)
class Tally:
    """Results of one batch: accepted documents (adds, and tombstones of deletes), barriers, dead letters."""

    accepted: int = 0
    barriers: int = 0
    dead: int = 0


@dataclass(slots=True, kw_only=True)
class _Batch:
    """Progress of a batch. It is kept if the batch is abandoned, so that the next attempt resumes.

    `accepted` gives the version that Solr has stored, by row key. `dead_letter_records`, by row key, are not in
    Kafka yet. `early` has the dead letters of writes from the future, by row key and timestamp: they must not hide
    other changes of their rows. `unreadable` has the errors of layouts that are not stored, by id, so that each is
    looked up only once. `tally` are the counts so far. `backlog`: documents may become visible later, in favour of
    throughput."""

    accepted: dict[bytes, int] = field(default_factory=dict)
    early: dict[tuple[bytes, int], DeadLetter] = field(default_factory=dict)
    dead_letter_records: dict[bytes, DeadLetter] = field(default_factory=dict)
    unreadable: dict[int, Skippable] = field(default_factory=dict)
    tally: Tally = field(default_factory=Tally)
    backlog: bool = False

    def refuse(self, change: RowChange, reason: str) -> None:
        self.dead_letter_records[change.row] = DeadLetter(
            row=change.row, version=change.version, cells=change.cells, reason=reason
        )

    def refuse_early(self, write: Write) -> None:
        self.early[write.row, write.timestamp] = DeadLetter(
            row=write.row,
            version=2 * write.timestamp + (write.type != PUT),  # so that no change before it settles it
            cells=write.cells,
            reason=EARLY.format(write.timestamp),
        )

    def is_done(self, change: RowChange) -> bool:
        """Return whether an earlier attempt of the batch processed this change or a newer one of the row."""
        if self.accepted.get(change.row, -1) >= change.version:
            self.tally.accepted += 1
            return True
        return change.row in self.dead_letter_records and self.dead_letter_records[change.row].version >= change.version


class Collection(Protocol):
    """Target of documents (indexer.solr.solr_collection).

    `post` returns once every document except the refused ones is stored, fenced. It raises Retriable while Solr is
    unavailable. Documents of a `backlog` may become visible later than others, in favour of throughput. `begin` starts
    a post in the background and returns a function that waits for its end, and returns or raises like `post`.
    """

    def ensure_fields(self, wanted: Iterable[Field]) -> bool: ...
    def post(self, documents: Sequence[Document], *, backlog: bool = False) -> list[RefusedDocument]: ...
    def begin(self, documents: Sequence[Document], *, backlog: bool = False) -> Callable[[], list[RefusedDocument]]: ...


class LayoutStore(Protocol):
    """Returns stored layouts by id (indexer.table.hbase_layouts). Raises Skippable for an id that is not stored."""

    def layout(self, layout_id: int) -> Layout: ...


class DeadLetters(Protocol):
    """Target of dead letters (indexer.index.kafka_dead_letters). `put` returns once Kafka has stored them.

    `accepted` receives the rows that were indexed, with their versions, and settles earlier dead letters of these
    rows."""

    def put(self, dead_letter_records: Sequence[DeadLetter]) -> None: ...
    def accepted(self, rows: Mapping[bytes, int]) -> None: ...


@dataclass(slots=True)
class _Chunk:
    changes: list[RowChange] = field(default_factory=list)
    documents: list[Document] = field(default_factory=list)
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class _Post:
    """A chunk that is being posted. `wait` returns the documents that Solr refused."""

    chunk: _Chunk
    wait: Callable[[], list[RefusedDocument]]


class Processor:
    """Indexes the edits of one table into one collection. Threads may call `process` concurrently.

    `table` is HBase's name of the table and `family` its column family. `search` lists the columns with full-text
    search. `clock_ms` and `monotonic` (seconds) are clocks. Rows whose timestamp is more than `tolerance_ms` in the
    future become dead letters."""

    def __init__(
        self,
        *,
        table: str,
        family: str,
        search: Sequence[str],
        layouts: LayoutStore,
        collection: Collection,
        dead_letters: DeadLetters,
        clock_ms: Callable[[], int],
        monotonic: Callable[[], float],
        tolerance_ms: int = 3_600_000,
    ) -> None:
        self._tolerance_ms = tolerance_ms
        self._table, self._family, self._search = table.encode(), family.encode(), tuple(search)
        self._layouts, self._collection, self._dead_letters = layouts, collection, dead_letters
        self._clock_ms, self._monotonic = clock_ms, monotonic
        self._mappers: dict[int, Mapper] = {}
        self._knows_later_fields = False
        self._unfinished: dict[frozenset[bytes], _Batch] = {}

    def process(self, edits: Edits, *, give_up: float) -> Tally:
        """Index a batch and return its counts. Call it again with the same batch if it raises.

        Raises Retriable if a server is unavailable, or if the `monotonic` clock passes `give_up`: HBase stops
        waiting then. The caller must not acknowledge the batch in that case, and HBase sends it again."""
        regions = edits.regions
        batch = self._unfinished.pop(regions, None) or _Batch()
        batch.tally, batch.unreadable, batch.backlog = Tally(), {}, edits.cell_count > WINDOW_CELLS // 4
        try:
            self._run(edits, batch, give_up)
        except TailorbirdError:
            # Without this, a batch that takes longer than HBase waits would start again for ever.
            self._unfinished[regions] = batch
            while len(self._unfinished) > _UNFINISHED:
                self._unfinished.pop(next(iter(self._unfinished)), None)
            raise
        return batch.tally

    def index_rows(self, changes: Iterable[RowChange]) -> Tally:
        """Index rows that a scan read from the table, without barriers. Raises the same errors as `process`."""
        batch = _Batch(backlog=True)
        self._post_rows([[change for change in changes if not is_barrier(change.row)]], batch, math.inf)
        self._keep_dead_letters(batch)
        return batch.tally

    def _run(self, edits: Edits, batch: _Batch, give_up: float) -> None:
        barriers: dict[bytes, RowChange] = {}

        def rows() -> Iterator[list[RowChange]]:
            for writes in self._windows(edits, batch):
                found: list[RowChange] = []
                for change in collapse(writes, self._family):
                    if not is_barrier(change.row):
                        found.append(change)
                    elif change.row not in barriers or barriers[change.row].version < change.version:
                        barriers[change.row] = change
                yield found

        self._post_rows(rows(), batch, give_up)
        # after every row of the batch, regardless of their order in it
        documents = self._barriers(barriers.values(), batch)
        self._keep_dead_letters(batch)
        if documents:
            self._post_barriers(documents, batch)

    def _post_rows(self, windows: Iterable[list[RowChange]], batch: _Batch, give_up: float) -> None:
        """Post every row. The next chunks are decoded and mapped while Solr processes the previous ones."""
        posts: deque[_Post] = deque()
        try:
            # a chunk may be of two windows, so that few chunks are smaller than the limit
            for chunk in self._chunks(chain.from_iterable(windows), batch):
                if self._monotonic() > give_up:
                    raise Retriable(f"a batch takes longer than HBase waits, {len(batch.accepted)} rows are indexed")
                posts.append(_Post(chunk, self._collection.begin(chunk.documents, backlog=batch.backlog)))
                if len(posts) > _POSTS:
                    self._settle(posts.popleft(), batch)
            while posts:
                self._settle(posts.popleft(), batch)
        except TailorbirdError:
            # No post of this batch may still be running when it is sent again; completed posts are remembered.
            for post in posts:
                with contextlib.suppress(TailorbirdError):
                    self._settle(post, batch)
            raise

    def _keep_dead_letters(self, batch: _Batch) -> None:
        if dead := [*batch.dead_letter_records.values(), *batch.early.values()]:
            self._dead_letters.put(dead)
            batch.tally.dead = len(dead)
        self._dead_letters.accepted(
            {row: version for row, version in batch.accepted.items() if row not in batch.dead_letter_records}
            if batch.dead_letter_records else batch.accepted
        )  # fmt: skip

    def _windows(self, edits: Edits, batch: _Batch) -> Iterator[list[Write]]:
        """Yield the writes to this table, some edits at a time, which bounds memory.

        A row may be in several windows. Solr's fence then keeps the newest version."""
        window: list[Write] = []
        cells, latest = 0, self._clock_ms() + self._tolerance_ms
        for entry in edits.entries():
            # Another table's edits arrive only if somebody has widened the peer by hand.
            if entry.table == self._table:
                for write in entry.writes:
                    if write.timestamp <= latest:
                        window.append(write)
                    elif write.family == self._family:
                        batch.refuse_early(write)
                cells += sum(len(write.cells) for write in entry.writes)
            if cells >= WINDOW_CELLS:
                yield window
                window, cells = [], 0
        if window:
            yield window

    def _chunks(self, changes: Iterable[RowChange], batch: _Batch) -> Iterator[_Chunk]:
        """Yield the documents in chunks of limited size. Rows are mapped only when their chunk is due, which bounds
        memory."""
        chunk = _Chunk()
        now_ms = self._clock_ms()
        for change in changes:
            if batch.is_done(change):
                continue
            try:
                document = self._document(change, batch, now_ms)
            except Skippable as error:
                batch.refuse(change, error.message)
                continue
            chunk.changes.append(change)
            chunk.documents.append(document)
            chunk.bytes += sum(map(len, change.cells.values()))
            if len(chunk.documents) >= CHUNK_DOCUMENTS or chunk.bytes >= CHUNK_BYTES:
                yield chunk
                chunk, now_ms = _Chunk(), self._clock_ms()
        if chunk.documents:
            yield chunk

    def _document(self, change: RowChange, batch: _Batch, now_ms: int) -> Document:
        if change.version > 2 * (now_ms + self._tolerance_ms) + 1:  # of a scan: `_windows` drops those of edits
            raise Skippable(EARLY.format(change.version // 2))
        if change.deleted:
            return tombstone(change)
        try:
            layout_id = layout_id_of(change.cells)
        except KeyError as error:
            raise Skippable("not a whole row: cell _layout is missing") from error
        except struct.error as error:
            raise Skippable(f"cell _layout cannot be read: {error}") from error
        return self._mapper(layout_id, batch).document(change, now_ms=now_ms)

    def _mapper(self, layout_id: int, batch: _Batch) -> Mapper:
        if layout_id in batch.unreadable:
            raise batch.unreadable[layout_id]
        mapper = self._mappers.get(layout_id)
        if mapper is None:
            try:
                mapper = Mapper(self._layouts.layout(layout_id), self._search)
            except Skippable as error:
                batch.unreadable[layout_id] = error
                raise
            self._collection.ensure_fields(mapper.fields)
            self._mappers[layout_id] = mapper
        return mapper

    def _settle(self, post: _Post, batch: _Batch) -> None:
        chunk, refused = post.chunk, post.wait()
        if refused and self._restore_fields():
            refused = self._collection.post(chunk.documents, backlog=batch.backlog)
        reasons = {each.position: each.reason for each in refused}
        for position, change in enumerate(chunk.changes):
            if position in reasons:
                batch.refuse(change, reasons[position])
            else:
                batch.accepted[change.row] = change.version
        batch.tally.accepted += len(chunk.documents) - len(refused)

    def _restore_fields(self) -> bool:
        """Add the fields that a recreated collection lacks. Return whether any was missing.

        Without them, Solr would refuse every row for an unknown field, and every row would become a dead letter."""
        return self._collection.ensure_fields([each for mapper in self._mappers.values() for each in mapper.fields])

    def _barriers(self, changes: Iterable[RowChange], batch: _Batch) -> list[Document]:
        documents: list[Document] = []
        for change in changes:
            if change.deleted:
                documents.append({fields.UNIQUE_KEY: fields.barrier_id(change.row[0]), fields.FENCE: change.version})
                continue
            try:
                barrier = load_barrier(change.cells[BARRIER])
            except (KeyError, ValueError, TypeError, AttributeError) as error:
                batch.refuse(change, f"not a barrier: {error!r}")
                continue
            documents.append(barrier_document(barrier, change.version, now_ms=self._clock_ms()))
        return documents

    def _post_barriers(self, documents: list[Document], batch: _Batch) -> None:
        if not self._knows_later_fields:
            self._collection.ensure_fields(LATER_FIELDS)
            self._knows_later_fields = True
        refused = self._collection.post(documents)
        if refused and self._collection.ensure_fields(LATER_FIELDS):  # the collection was created again in the meantime
            refused = self._collection.post(documents)
        for each in refused:
            raise Fatal(
                f"the search engine refused a barrier: {each.reason}", "the collection's schema is not the one of apply"
            )
        batch.tally.barriers += len(documents)
