"""Write the documents of an external table's rows into one collection, by compare-and-set.

An edit only shows that a row has changed. So the writer reads the document's `_version_` from Solr, then the row
from HBase, and writes the result on condition that the version is unchanged. If another writer was faster, it
repeats all three steps. Of two writers, the later one read the row after the earlier one. So the last write contains
the last state, even if work is repeated, reordered or done twice.

A deleted row leaves a tombstone. Without one, a delayed write on condition that the document is absent could restore
the row."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from cdc.model.errors import Retriable, Skippable
from cdc.stored import fields
from cdc.stored.foreign import ForeignTable
from indexer.foreign.mapping import Cells, Column, ForeignMapper, ForeignRow
from indexer.index.collapse import collapse
from indexer.index.mapping import Document, Field
from indexer.index.processor import EARLY, DeadLetter, RefusedDocument, Tally
from indexer.peer.wire import PUT, Write

_ATTEMPTS = 50


class ForeignRows(Protocol):
    """Reads rows (indexer.foreign.hbase_foreign). A row that does not exist is omitted. Raises Retriable while HBase is
    unavailable."""

    def rows(self, keys: Sequence[bytes]) -> list[ForeignRow]: ...


class ConditionalCollection(Protocol):
    """A collection with conditional writes (indexer.solr.solr_collection). Raises Retriable while Solr is
    unavailable.

    - `versions` returns `_version_` of the existing documents by id, including tombstones.
    - `put_if` writes documents that each contain `_version_` (-1: must be absent). It returns the ids whose
      condition failed, and the documents that Solr refused.
    - `keys_of` returns the ids of a row's documents, including those that queries do not see yet."""

    def ensure_fields(self, wanted: Iterable[Field]) -> bool: ...
    def post(self, documents: Sequence[Document], *, backlog: bool = False) -> list[RefusedDocument]: ...
    def versions(self, keys: Sequence[str]) -> dict[str, int]: ...
    def put_if(self, documents: Sequence[Document]) -> tuple[set[str], list[RefusedDocument]]: ...
    def keys_of(self, row: str) -> list[str]: ...


class ForeignWriter:
    """Writes the documents of one external table into one collection; threads may share it.

    `complete` and `post_events` count the documents that Solr accepted in `tally`. They return the dead letters, which
    the caller stores. They raise Retriable while a server is unavailable; some of the rows may then be written.
    """

    def __init__(
        self,
        table: ForeignTable,
        mapper: ForeignMapper,
        *,
        rows: ForeignRows,
        collection: ConditionalCollection,
        clock_ms: Callable[[], int],
        tolerance_ms: int = 3_600_000,
    ) -> None:
        self._tolerance_ms = tolerance_ms
        self._table, self._mapper, self._rows = table, mapper, rows
        self._collection, self._clock_ms = collection, clock_ms
        self._fields_known = False

    def complete(self, touched: Mapping[bytes, set[Column]], tally: Tally) -> list[DeadLetter]:
        """Update the documents of some rows to the rows' current state in HBase, by compare-and-set.

        `touched` gives for each row key the columns that an edit wrote or deleted. Raises Retriable for rows that are
        written faster than they can be indexed."""
        self._ensure_fields()
        dead_letters: list[DeadLetter] = []
        waiting = touched
        for _ in range(_ATTEMPTS):
            if not waiting:
                return dead_letters
            waiting = {row: touched[row] for row in self._attempt(waiting, tally, dead_letters)}
        raise Retriable(f"{len(waiting)} rows are written faster than they can be indexed")

    def _attempt(self, keys: Mapping[bytes, set[Column]], tally: Tally, dead_letters: list[DeadLetter]) -> list[bytes]:
        """Try once to update the documents of rows by compare-and-set.

        Counts accepted documents in `tally` and appends to `dead_letters`. Return the rows that must be tried again,
        because another writer changed their documents in the meantime."""
        ids, owners, unnamed = self._known_ids(keys)
        dead_letters += unnamed
        # In this order: the version is read before the row, never after it.
        versions = self._collection.versions(ids)
        now_ms = self._clock_ms()
        wanted: dict[str, Document] = {}
        found = {each.row: each for each in self._rows.rows(list(dict.fromkeys(owners.values())))}
        bad: set[bytes] = set()
        again: set[bytes] = set()
        for row in dict.fromkeys(owners.values()):
            present = found.get(row)
            if present is None:
                continue
            try:
                made = self._mapper.documents(row, present.cells, version=2 * present.timestamp, now_ms=now_ms)
            except Skippable as error:
                dead_letters.append(_dead_letter(row, present.cells, 2 * present.timestamp, error.message))
                bad.add(row)
                continue
            for key, document in made.items():
                if key not in owners:
                    # a column that appeared after the row's ids were listed: its version is not known yet
                    again.add(row)
                wanted[key] = document
        documents: list[Document] = []
        for key, row in owners.items():
            if row in bad:
                continue
            version = versions.get(key, -1)
            if key in wanted:
                documents.append({**wanted[key], "_version_": version})
            else:
                # Deleted, or never seen: write a tombstone in both cases, or another indexer that has read the row
                # before its deletion would still write it on condition of "absent".
                documents.append({**self._mapper.tombstone(key, row, version=2 * now_ms + 1), "_version_": version})
        conflicts, refused = self._collection.put_if(documents)
        tally.accepted += len(documents) - len(conflicts) - len(refused)
        for each in refused:
            row = owners[str(documents[each.position][fields.UNIQUE_KEY])]
            present = found.get(row)
            dead_letters.append(_dead_letter(row, present.cells if present else {}, 0, each.reason))
        return [*dict.fromkeys([*(owners[key] for key in conflicts), *again])]

    def _known_ids(self, keys: Mapping[bytes, set[Column]]) -> tuple[list[str], dict[str, bytes], list[DeadLetter]]:
        """Return the ids of all documents that the rows have or had, the row of each id, and dead letters.

        With one document per cell (`mapping: column`), the ids are read from both HBase and Solr."""
        owners: dict[str, bytes] = {}
        dead_letters: list[DeadLetter] = []
        now = {each.row: each for each in self._rows.rows(list(keys))} if self._table.mapping == "column" else {}
        for row, columns in keys.items():
            try:
                if self._table.mapping == "row":
                    owners[self._mapper.key(row)] = row
                    continue
                present = now.get(row)
                made = self._mapper.documents(row, present.cells, version=0, now_ms=0) if present else {}
                touched = [self._mapper.key(row, column) for column in columns if self._mapper.wants(column)]
                for key in (*made, *touched, *self._collection.keys_of(row.hex())):
                    owners[key] = row
            except Skippable as error:
                dead_letters.append(_dead_letter(row, {}, 0, error.message))
        return list(owners), owners, dead_letters

    def post_events(self, touched: Mapping[bytes, list[Write]], tally: Tally) -> list[DeadLetter]:
        """Write the documents from the edits alone (`read_row: never`): each row's writes are taken as the whole
        row.

        No row is read. The documents are fenced by the timestamps of the writes."""
        self._ensure_fields()
        dead_letters: list[DeadLetter] = []
        documents: list[tuple[bytes, Document]] = []
        now_ms = self._clock_ms()
        for row, writes in touched.items():
            cells, version, gone = _merged(row, writes)
            try:
                if version > 2 * (now_ms + self._tolerance_ms) + 1:
                    raise Skippable(EARLY.format(version // 2))
                if gone:
                    if self._table.mapping == "column":
                        raise Skippable("a row delete under mapping: column needs read_row: dynamic")
                    documents.append((row, self._mapper.tombstone(self._mapper.key(row), row, version=version)))
                elif not cells or any(write.type != PUT for write in writes):
                    raise Skippable("a delete of cells under read_row: never leaves the rest of the row unknown")
                else:
                    made = self._mapper.documents(row, cells, version=version, now_ms=now_ms)
                    documents += [(row, document) for document in made.values()]
            except Skippable as error:
                dead_letters.append(_dead_letter(row, cells, version, error.message))
        refused = self._collection.post([document for _, document in documents])
        dead_letters += [_dead_letter(documents[each.position][0], {}, 0, each.reason) for each in refused]
        tally.accepted += len(documents) - len(refused)
        return dead_letters

    def _ensure_fields(self) -> None:
        if not self._fields_known:
            self._collection.ensure_fields(self._mapper.fields)
            self._fields_known = True


def _merged(row: bytes, writes: Sequence[Write]) -> tuple[dict[Column, bytes], int, bool]:
    """Return a row's live cells, its version, and whether the whole row is deleted, over all column families."""
    cells: dict[Column, bytes] = {}
    changes = []
    for family in dict.fromkeys(write.family for write in writes):
        [change] = collapse(writes, family)
        changes.append(change)
        cells.update({(family, qualifier): value for qualifier, value in change.cells.items()})
    gone = not cells and all(change.deleted for change in changes)
    return cells, max(change.version for change in changes), gone


def columns_of(writes: Sequence[Write]) -> set[Column]:
    """Return the columns that the writes name. A delete of a whole family names none."""
    return {(write.family, qualifier) for write in writes for qualifier in write.cells if qualifier}


def _dead_letter(row: bytes, cells: Cells, version: int, reason: str) -> DeadLetter:
    named = {family + b":" + qualifier: value for (family, qualifier), value in cells.items()}
    return DeadLetter(row=row, version=version, cells=named, reason=reason)
