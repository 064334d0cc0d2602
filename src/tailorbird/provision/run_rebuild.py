"""Fill collections by a scan of their tables, for `apply` and `index reindex`, and compare the result."""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from cdc.model.errors import Fatal, Retriable
from cdc.stored import fields
from cdc.topology.topology import Index, Topology, engine_name
from indexer.engine.engine import SearchCollection, open_collection
from indexer.foreign.hbase_foreign import ForeignReader
from indexer.index.collapse import RowChange
from indexer.index.kafka_dead_letters import KafkaDeadLetters
from indexer.index.mapping import Document, fields_of
from indexer.index.processor import DeadLetters, Tally
from indexer.rebuild.rebuild import Counts, DryRunTarget, Scan, StateStore, TableRows
from indexer.run_indexer import AnyCollection, AnyProcessor, build_processor
from indexer.table.hbase_layouts import StoredLayouts
from indexer.table.hbase_scan import PAGE, TableScan

_SAMPLES = 200
_TRIES = 20
# Rows written within this time of a count may be in only one of the collections.
_SETTLED_SECONDS = 10


class Rebuilder:
    """Fills collections of one index by a scan of its table. `reported` is called with each page's number of rows.

    Several threads call `reported` at the same time."""

    def __init__(
        self, topology: Topology, index: Index, *, reported: Callable[[int], None] = lambda rows: None
    ) -> None:
        self._topology, self._index, self._reported = topology, index, reported
        self._layouts = StoredLayouts(topology.hbase.thrift, topology=topology.name, table=index.table)
        foreign, table = topology.foreign_tables.get(index.table), topology.tables.get(index.table)
        self._scanned: TableScan | None = None
        self._sample = _Sample()
        self._rows: TableRows
        if foreign is not None:
            self._rows, self._buckets = ForeignReader(topology.hbase.thrift, foreign), 1
        elif table is not None:
            self._rows = self._scanned = TableScan(topology, table)
            self._buckets = table.salt_buckets

    def expected(self) -> int | None:
        """Estimate the number of rows from the live collection.

        None if the index has one document per cell, or while Solr is unavailable."""
        foreign = self._topology.foreign_tables.get(self._index.table)
        if foreign is not None and foreign.mapping == "column":
            return None
        try:
            with self._collection(self._index.collection) as live:
                return live.count_rows(until_ms=time.time_ns() // 1_000_000)
        except Retriable:
            return None

    def fill(self, name: str, state: StateStore, *, rows_per_second: float | None = None) -> Counts:
        """Index every row of the table into the collection `name`, and resume from the progress in `state`.

        The fields of the newest layout are created first, so that a column whose type changed gets the new type.
        Raises Retriable if a server stays unavailable; the next call resumes."""
        with self._collection(name) as collection:
            newest = self._layouts.newest() if self._scanned else None
            if newest is not None:
                collection.ensure_fields(fields_of(newest, self._index.search))
            return self._scan(name, state, self._processor([collection], self._dead_letters()), rows_per_second)

    def replay(self, keys: Sequence[bytes], names: Sequence[str]) -> Counts:
        """Index the current state of some rows. Rows that cannot be indexed become new dead-letter records.

        Deleted rows are skipped, because replication ships their deletes. `names` are all collections of the index."""
        rows = dead = 0
        with contextlib.ExitStack() as opened:
            collections = [opened.enter_context(self._collection(name)) for name in names]
            processor = self._processor(collections, self._dead_letters())
            for start in range(0, len(keys), PAGE):
                some = keys[start : start + PAGE]
                # the processor of foreign tables reads their rows itself
                changes = self._scanned.rows(some) if self._scanned else [RowChange(k, 0, {}, False) for k in some]
                dead += processor.index_rows(changes).dead
                rows += len(changes)
                self._reported(len(changes))
        return Counts(rows=rows, dead=dead)

    def rehearse(self, state: StateStore, *, rows_per_second: float | None = None) -> Counts:
        """Do a dry run of `fill`: count the rows that would be indexed or refused, and write nothing.

        Documents that only Solr would refuse are not detected."""
        nowhere = DryRunTarget()
        return self._scan("", state, self._processor([nowhere], nowhere), rows_per_second)

    def compare(self, new: str) -> str:
        """Compare a filled collection with the live one by the number of rows, and with the table by a sample.

        Return a description of the difference, or an empty text. Rows that change in the meantime are compared
        again. An external table's keys are arbitrary, so its sample is drawn during a scan."""
        with self._collection(self._index.collection) as live, self._collection(new) as filled:
            return self._compare_counts(live, filled) or self._compare_samples(filled)

    def _compare_counts(self, live: SearchCollection, filled: SearchCollection) -> str:
        difference = ""
        for _ in range(_TRIES):
            until_ms = time.time_ns() // 1_000_000 - _SETTLED_SECONDS * 1000
            before, after = live.count_rows(until_ms=until_ms), filled.count_rows(until_ms=until_ms)
            if before == after:
                return ""
            difference = f"{self._index.collection} shows {before} rows, the new collection {after}"
            time.sleep(0.5)
        return difference

    def _compare_samples(self, filled: SearchCollection) -> str:
        wanted = dict(self._samples(filled, self._scanned)) if self._scanned else self._read(filled, self._sample.rows)
        fewest, left = len(wanted) + 1, _TRIES
        while left:
            wanted = {key: document for key, document in wanted.items() if document}
            held = filled.stored(list(wanted)) if wanted else {}
            different = [key for key, document in wanted.items() if not _shows(held.get(key), document)]
            if not different:
                return ""
            # documents may follow their rows by more than all tries: it is a difference if none catches up any more
            left, fewest = (_TRIES, len(different)) if len(different) < fewest else (left - 1, fewest)
            time.sleep(0.5)
            # a row may have changed since the sample was drawn, so read the table again
            if self._scanned:
                wanted = {key: self._document(filled, key) or {} for key in different}
            else:
                wanted = self._read(filled, [bytes.fromhex(str(wanted[key][fields.ROW_KEY])) for key in different])
        return f"{len(wanted)} of {_SAMPLES} sampled rows differ from the table, e.g. {next(iter(wanted))}"

    def _read(self, filled: SearchCollection, rows: Sequence[bytes]) -> dict[str, Document]:
        """Return the documents that some rows of an external table should have now, by id."""
        found: list[Document] = []
        processor = self._processor([DryRunTarget(found.extend, ensure=filled.ensure_fields)], DryRunTarget())
        processor.index_rows([RowChange(row, 0, {}, False) for row in rows])
        return {
            str(document[fields.UNIQUE_KEY]): {name: document[name] for name in document if name != "_version_"}
            for document in found
            if fields.KIND in document  # others are tombstones
        }

    def _samples(self, filled: SearchCollection, rows: TableScan) -> Iterator[tuple[str, Document]]:
        for _ in range(_SAMPLES):
            bucket = random.randrange(self._buckets)
            change = rows.first_from(bytes([bucket, 1]) + random.randbytes(4))
            if change is not None and (document := self._mapped(filled, change)):
                yield str(document[fields.UNIQUE_KEY]), document

    def _document(self, filled: SearchCollection, key: str) -> Document | None:
        changes = self._scanned.rows([bytes.fromhex(key)]) if self._scanned else []
        return self._mapped(filled, changes[0]) if changes else None

    def _mapped(self, filled: SearchCollection, change: RowChange) -> Document | None:
        """Return the document that a row should have in this collection. None if the row is refused."""
        found: list[Document] = []
        processor = self._processor([DryRunTarget(found.extend, ensure=filled.ensure_fields)], DryRunTarget())
        processor.index_rows([change])
        try:
            return filled.converted(found[0]) if found else None
        except ValueError:
            return None

    def _scan(self, name: str, state: StateStore, processor: AnyProcessor, rows_per_second: float | None) -> Counts:
        stopped = threading.Event()

        def indexed(page: Sequence[RowChange]) -> Tally:
            self._sample.take(page)
            return processor.index_rows(page)

        scan = Scan(
            self._rows,
            indexed,
            state,
            collection=name,
            buckets=self._buckets,
            throttle=_throttle(rows_per_second),
            pause=lambda seconds: _ignore(stopped.wait(seconds)),
            stopped=stopped.is_set,
            lock=threading.Lock(),
        )
        self._reported(scan.counts().rows)
        with ThreadPoolExecutor(max_workers=min(8, self._buckets)) as threads:
            under_way = [threads.submit(scan.bucket, bucket, self._reported) for bucket in scan.unfinished()]
            try:
                for each in under_way:
                    each.result()
            except BaseException:
                stopped.set()
                raise
        return scan.counts()

    def _dead_letters(self) -> KafkaDeadLetters:
        return KafkaDeadLetters(
            self._topology.log.brokers,
            topology=self._topology.name,
            index=self._index.name,
            replication_factor=self._topology.log.replication_factor,
        )

    def _processor(self, collections: Sequence[AnyCollection], dead_letters: DeadLetters) -> AnyProcessor:
        return build_processor(self._topology, self._index, self._layouts, collections, dead_letters)

    @contextlib.contextmanager
    def _collection(self, name: str) -> Iterator[SearchCollection]:
        collection = open_collection(self._topology, self._index, name)
        try:
            yield collection
        finally:
            collection.close()


class _Sample:
    """A uniform random sample of the rows of a scan. Threads may share it."""

    def __init__(self) -> None:
        self.rows: list[bytes] = []
        self._seen = 0
        self._lock = threading.Lock()

    def take(self, page: Sequence[RowChange]) -> None:
        """Add the next rows of the scan."""
        with self._lock:
            for change in page:
                self._seen += 1
                if len(self.rows) < _SAMPLES:
                    self.rows.append(change.row)
                elif (place := random.randrange(self._seen)) < _SAMPLES:
                    self.rows[place] = change.row


def wait_for_collection(topology: Topology, index: Index, name: str, *, seconds: float) -> None:
    """Wait until the search engine serves a new collection of an index. Raises Fatal after `seconds`."""
    collection = open_collection(topology, index, name)
    deadline = time.monotonic() + seconds
    try:
        while True:
            try:
                if collection.exists():
                    return
            except Retriable:
                pass  # it may be starting
            if time.monotonic() > deadline:
                what = f"{engine_name(index)} does not serve the new collection {name}"
                raise Fatal(what, f"see `tailorbird stack logs {index.type}`")
            time.sleep(0.1)
    finally:
        collection.close()


def _shows(held: Document | None, wanted: Document) -> bool:
    """Return whether the stored document `held` is the `wanted` one, or a newer version of it."""
    if held is None:
        return False
    if _fence(held) > _fence(wanted):
        return True
    return all(
        held.get(name) == value
        for name, value in wanted.items()
        if not name.startswith(fields.MADE) and name != fields.INDEXED_AT
    )


def _fence(document: Document) -> int:
    fence = document.get(fields.FENCE, 0)
    assert isinstance(fence, int)
    return fence


def _throttle(rows_per_second: float | None) -> Callable[[int], None]:
    """Return a function that takes numbers of rows and waits so that all threads together keep the rate."""
    if rows_per_second is None:
        return lambda rows: None
    lock, due = threading.Lock(), [time.monotonic()]

    def wait(rows: int) -> None:
        with lock:
            due[0] = max(due[0], time.monotonic()) + rows / rows_per_second
            pause = due[0] - time.monotonic()
        time.sleep(max(0.0, pause))

    return wait


def _ignore(_: object) -> None:
    """Ignore a value."""
