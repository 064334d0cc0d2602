"""Read rows from HBase as the documents that the indexer makes of them: the near end of the index stage."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import sha256

import structlog

from cdc.model.errors import Fatal, Retriable, Skippable
from cdc.stored import fields
from cdc.stored.cells import document_id, layout_id_of
from cdc.stored.layout import Layout, dump_layout
from cdc.topology.topology import Index, Table, Topology
from indexer.index.collapse import RowChange
from indexer.index.mapping import Document, Field, Mapper
from indexer.table.hbase_changes import ChangedRows
from indexer.table.hbase_layouts import StoredLayouts
from indexer.table.hbase_scan import PAGE, TableScan
from joins.stores.hbase_table import joined_table
from tailorbird.verify.index.index_leaves import IdRange, RowChanges
from tailorbird.verify.index.index_stage import RowDocument
from tailorbird.verify.proc_prefetch import prefetch, rows_in_order

# The time of indexing and Solr's own version do not depend on the row.
UNCOMPARED = frozenset({fields.INDEXED_AT, "_version_"})

Fit = Callable[[Document], Document]

log = structlog.get_logger()


class RowDocuments:
    """Rows of a table as documents by id, for one thread.

    `know` is called with the fields of each new layout. `fit` converts a document to the collection's field types;
    it raises ValueError if a value does not fit. With `whole`, documents have everything that the indexer would
    post. Otherwise they have only the compared fields, at half the cost. Raises Retriable while HBase is
    unavailable, UsageError if the table is missing."""

    def __init__(
        self,
        topology: Topology,
        table: Table,
        index: Index,
        *,
        know: Callable[[Sequence[Field]], object],
        fit: Fit,
        whole: bool = False,
    ) -> None:
        self._table, self._search = table, index.search
        self._scanned = TableScan(topology, table)
        self._changes = ChangedRows(topology, table)
        self._layouts = StoredLayouts(topology.hbase.thrift, topology=topology.name, table=table.name)
        self._joined = joined_table(topology, table)
        self._know, self._fit, self._whole = know, fit, whole
        self._mappers: dict[int, Mapper | Skippable] = {}
        self._hidden: frozenset[str] = UNCOMPARED

    def check(self, file: str) -> None:
        """Check that the table exists. Raises UsageError, with a remedy for the topology's `file`, if it does not.

        Raises Retriable while HBase is unavailable."""
        self._joined.check(file)

    def newest_layout(self) -> Layout | None:
        """Return the layout that new rows are written with; None before the first one."""
        return self._layouts.newest()

    def scan(self) -> Iterator[tuple[str, RowDocument]]:
        """Yield every row, in the order of the ids."""
        scanned = self._scanned
        found = rows_in_order(self._table.salt_buckets, lambda at, last: scanned.pages(at, None, to_the_end=last))
        for change in found:
            yield document_id(change.row), self._seen(change)

    def versions(self) -> Iterator[tuple[str, int]]:
        """Yield id and version of every row. This costs a fraction of `scan`."""
        scanned = self._scanned
        found = rows_in_order(self._table.salt_buckets, lambda at, last: scanned.versions(at, to_the_end=last))
        for key, version in found:
            yield document_id(key), version

    def within(self, ranges: Sequence[IdRange]) -> Iterator[tuple[str, RowDocument]]:
        """Yield the rows of some ascending ranges, in the order of the ids."""
        for page in prefetch(self._scanned.within([_row_keys(ids) for ids in ranges])):
            for change in page:
                yield document_id(change.row), self._seen(change)

    def versions_between(self, ids: IdRange) -> Iterator[tuple[str, int]]:
        """Yield id and version of the rows of a range."""
        for page in self._scanned.versions_between(*_row_keys(ids)):
            for key, version in page:
                yield document_id(key), version

    def changed(self, timestamp: int, known: Mapping[str, Sequence[str]]) -> RowChanges:
        """Return the changes with this HBase timestamp or a later one. If HBase refuses such a scan, or a region
        moves, all rows are unknown."""
        try:
            found = self._changes.since(timestamp, known)
        except (Retriable, Fatal, Skippable) as error:
            log.warning("changes_unknown", table=self._table.name, reason=str(error), effect="all rows are counted")
            return RowChanges(ids=(), unknown=(IdRange("", None),), store_files={})
        unknown = [IdRange(one.start.hex(), None if one.stop is None else one.stop.hex()) for one in found.unknown]
        return RowChanges(ids={document_id(key) for key in found.keys}, unknown=unknown, store_files=found.store_files)

    def store_files(self) -> Mapping[str, Sequence[str]]:
        """Return the store files of each region. Empty if HBase refuses."""
        try:
            return self._changes.store_files()
        except (Retriable, Fatal, Skippable) as error:
            log.warning("store_files_unknown", table=self._table.name, reason=str(error))
            return {}

    def expiry(self) -> int:
        """Return after how many seconds cells expire, or 0 if they never do."""
        return self._changes.expiry()

    def rows(self, ids: Sequence[str]) -> Mapping[str, RowDocument]:
        """Return the rows that exist, by document id."""
        return {key: self._seen(change) for key, change in self.changes(ids)}

    def changes(self, ids: Sequence[str]) -> Iterator[tuple[str, RowChange]]:
        """Yield the rows that exist, as the indexer receives them, with their ids."""
        keys = [key for key in map(_row_key, ids) if key]
        for start in range(0, len(keys), PAGE):
            for change in self._scanned.rows(keys[start : start + PAGE]):
                yield document_id(change.row), change

    def written(self) -> int:
        """Return the newest timestamp (ms) of a batch or barrier of the table."""
        return self._joined.last_timestamp()

    def identity(self) -> dict[str, str]:
        """Return what identifies the table's contents and mapping: after a change, digests of before are useless."""
        layout = self._layouts.newest()
        stored = sha256(dump_layout(layout)).hexdigest() if layout else ""
        return {
            "table": f"{self._joined.hbase.address} {self._joined.table}",
            "layout": f"{stored} {' '.join(self._search)}",
            "run of the join": " ".join(self._joined.runs()),
            "repair of the table": str(self._joined.repairs()),
        }

    def document(self, change: RowChange, *, now_ms: int) -> Document:
        """Return the document that the indexer would post. Raises Skippable if it would refuse the row."""
        try:
            mapper = self._mapper(layout_id_of(change.cells))
        except KeyError as error:
            raise Skippable("incomplete row: cell _layout is missing") from error
        except struct.error as error:
            raise Skippable(f"cell _layout cannot be decoded: {error}") from error
        document = mapper.document(change, now_ms=now_ms)
        try:
            return self._fit(document)
        except ValueError as error:
            raise Skippable(str(error)) from error

    def _seen(self, change: RowChange) -> RowDocument:
        try:
            document = self.document(change, now_ms=0)
        except Skippable as error:
            return RowDocument(change.version, None, error.message)
        return RowDocument(change.version, without(document, self._hidden))

    def _mapper(self, layout_id: int) -> Mapper:
        known = self._mappers.get(layout_id)
        if known is None:
            try:
                known = Mapper(self._layouts.layout(layout_id), self._search, queried=self._whole)
            except Skippable as error:
                known = error
            else:
                self._know(known.fields)
                self._hidden |= {field.name for field in known.fields if not field.stored}
            self._mappers[layout_id] = known
        if isinstance(known, Skippable):
            raise known
        return known


def without(document: Document, hidden: frozenset[str]) -> Document:
    """Remove the fields `hidden` from a document in place, and return it."""
    for name in hidden & document.keys():
        del document[name]
    return document


def _row_keys(ids: IdRange) -> tuple[bytes, bytes | None]:
    return bytes.fromhex(ids.start), None if ids.stop is None else bytes.fromhex(ids.stop)


def _row_key(name: str) -> bytes | None:
    try:
        return bytes.fromhex(name)
    except ValueError:
        return None
