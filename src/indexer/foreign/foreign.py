"""Index the edits of an external table. An interrupted batch resumes where the previous process stopped.

An external table is an HBase table that another system writes. Its edits may lack columns of the row, so each
changed row is read from HBase and written to Solr conditionally (indexer.foreign.writer). A batch of 64 MB may take
minutes.

HBase waits only one minute for an answer, and no answer can cover a part of a batch. So the indexer stores its
progress in ZooKeeper after every few hundred rows. When HBase sends the batch again, to any process, the stored part
is skipped. A serial peer ships the edits of a region in the order of their sequence numbers, so one number describes
the progress."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from cdc.model.errors import Retriable
from cdc.stored.foreign import ForeignTable
from indexer.foreign.mapping import Column, ForeignMapper
from indexer.foreign.writer import ConditionalCollection, ForeignRows, ForeignWriter, columns_of
from indexer.index.collapse import RowChange
from indexer.index.processor import DeadLetter, DeadLetters, Tally
from indexer.peer.peer import Edits
from indexer.peer.wire import Write

ROWS_AT_A_TIME = 500

_NEWEST = 2**63  # version of a row that was read in its current state


class RegionProgress(NamedTuple):
    """Progress of a region's batch. Edits below `sequence` are indexed, and so are the first `writes` of that edit.

    `parts`, `accepted` and `dead` count the parts, accepted documents and dead letters of the batch so far. A
    resumed batch needs them to report its totals."""

    sequence: int = 0
    writes: int = 0
    parts: int = 0
    accepted: int = 0
    dead: int = 0

    def has(self, sequence: int, write: int) -> bool:
        """Return whether write number `write` (from 0) of edit `sequence` is already indexed."""
        return (sequence, write) < (self.sequence, self.writes)


class ProgressStore(Protocol):
    """Stores the progress of running batches by region (implemented by indexer.rebuild.zk_state).

    Raises Retriable while the store is unavailable. If stored progress is lost, a batch starts again, which is only
    slower."""

    def read(self, region: bytes) -> RegionProgress | None: ...
    def write(self, region: bytes, progress: RegionProgress) -> None: ...
    def clear(self, region: bytes) -> None: ...


class NoProgress:
    """A progress store that stores nothing, so each batch starts again. For callers that index rows instead of
    batches."""

    def read(self, region: bytes) -> RegionProgress | None:
        """Return None."""
        return None

    def write(self, region: bytes, progress: RegionProgress) -> None:
        """Do nothing."""

    def clear(self, region: bytes) -> None:
        """Do nothing."""


@dataclass(slots=True)
class _Part:
    """Some rows of a region's edits that are indexed together, with the writes to each row.

    The part ends after the first `writes` of edit `sequence`."""

    touched: dict[bytes, list[Write]] = field(default_factory=dict)
    sequence: int = 0
    writes: int = 0


class ForeignProcessor:
    """Indexes the edits of one external table into one or more collections.

    It has the contract of `indexer.index.processor.Processor`: `process` returns once every document or dead letter
    is stored. Tallies count the documents of the first collection only."""

    def __init__(
        self,
        table: ForeignTable,
        *,
        search: Sequence[str],
        rows: ForeignRows,
        collections: Sequence[ConditionalCollection],
        dead_letters: DeadLetters,
        progress: ProgressStore,
        clock_ms: Callable[[], int],
        monotonic: Callable[[], float],
        tolerance_ms: int = 3_600_000,
    ) -> None:
        self._table, self._dead_letters, self._progress = table, dead_letters, progress
        self._name = table.table.removeprefix("default:").encode()
        self._mapper = ForeignMapper(table, search)
        self._monotonic = monotonic
        self._writers = [
            ForeignWriter(table, self._mapper, rows=rows, collection=each, clock_ms=clock_ms, tolerance_ms=tolerance_ms)
            for each in collections
        ]

    def process(self, edits: Edits, *, give_up: float) -> Tally:
        """Index a batch and return its counts. `give_up` is a time of the `monotonic` clock, in seconds.

        Raises Retriable if a server is unavailable or `give_up` has passed. HBase then sends the batch again, and
        the next attempt resumes after the stored progress."""
        tally = Tally()
        under_way = []
        for region in edits.regions:
            before = self._progress.read(region)
            progress = self._run(edits, region, before or RegionProgress(), give_up)
            tally.accepted += progress.accepted
            tally.dead += progress.dead
            if before is not None or progress.parts > 1:
                under_way.append(region)
        for region in under_way:
            # Only the progress of running batches is stored, because the numbers of a restored table might start again.
            self._progress.clear(region)
        return tally

    def _run(self, edits: Edits, region: bytes, before: RegionProgress, give_up: float) -> RegionProgress:
        """Index a region's edits after `before`. Return the new progress.

        The progress after the last part is not stored: HBase is answered instead."""
        progress = before
        for part in self._parts(edits, region, before):
            if progress is not before:
                self._progress.write(region, progress)
            if self._monotonic() > give_up:
                raise Retriable(f"a batch takes longer than HBase waits, {progress.accepted} documents are indexed")
            found = self._index(part.touched)
            progress = RegionProgress(
                sequence=part.sequence,
                writes=part.writes,
                parts=progress.parts + 1,
                accepted=progress.accepted + found.accepted,
                dead=progress.dead + found.dead,
            )
        return progress

    def index_rows(self, changes: Iterable[RowChange]) -> Tally:
        """Index rows in their current state in HBase. Only the keys of `changes` are used."""
        keys: dict[bytes, set[Column]] = {change.row: set() for change in changes if self._table.covers(change.row)}
        return self._each(lambda writer, tally: writer.complete(keys, tally), keys)

    def _index(self, touched: dict[bytes, list[Write]]) -> Tally:
        if self._table.read_row == "never":
            return self._each(lambda writer, tally: writer.post_events(touched, tally), touched)
        columns = {row: columns_of(writes) for row, writes in touched.items()}
        return self._each(lambda writer, tally: writer.complete(columns, tally), columns)

    def _each(self, write: Callable[[ForeignWriter, Tally], list[DeadLetter]], rows: Iterable[bytes]) -> Tally:
        tallies, refused = [], set[bytes]()
        for writer in self._writers:
            tally = Tally()
            dead_letter_records = write(writer, tally)
            if dead_letter_records:
                self._dead_letters.put(dead_letter_records)
                tally.dead = len(dead_letter_records)
                refused.update(dead_letter.row for dead_letter in dead_letter_records)
            tallies.append(tally)
        self._dead_letters.accepted({row: _NEWEST for row in rows if row not in refused})
        return tallies[0]

    def _parts(self, edits: Edits, region: bytes, done: RegionProgress) -> Iterator[_Part]:
        """Yield a region's writes that may change a document, some rows at a time.

        A later write to a row is skipped if an earlier part already read the row, because that read contained the
        write."""
        part = _Part()
        read: dict[bytes, set[Column]] = {}
        for edit in edits.entries():
            if edit.region != region or edit.table != self._name:
                continue
            for number, write in enumerate(edit.writes):
                if done.has(edit.sequence, number) or not self._mapper.concerns(write) or self._shown(write, read):
                    continue
                if len(part.touched) == ROWS_AT_A_TIME and write.row not in part.touched:
                    yield part
                    if self._table.read_row == "dynamic":
                        for row, writes in part.touched.items():
                            read.setdefault(row, set()).update(columns_of(writes))
                    part = _Part()
                part.touched.setdefault(write.row, []).append(write)
                part.sequence, part.writes = edit.sequence, number + 1
        if part.touched:
            yield part

    def _shown(self, write: Write, read: dict[bytes, set[Column]]) -> bool:
        """Return whether an earlier part of the batch read the row, or the columns of this write, and so saw the
        write."""
        columns = read.get(write.row)
        return columns is not None and (self._table.mapping == "row" or columns_of([write]) <= columns)
