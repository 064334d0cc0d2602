"""Tables of others: partial writes are completed by a read of the row, and put in place by compare-and-set.

An event says no more than that a row has changed. So: ask Solr for the document's `_version_`, then read the row, then
write what it makes, on condition that the version is still the same; if not, again from the start. Of two writers the
later one has read the row after the earlier one had, so whatever is repeated, reordered or done twice, the last write
shows the last state. A row that is gone leaves a stub, or a write on condition of "absent" could bring it back.
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

from cdc import fields
from cdc.errors import Retriable, Skippable, TailorbirdError
from cdc.foreign import ForeignField, ForeignTable
from cdc.values import decoder
from indexer.collapse import RowChange, collapse
from indexer.mapping import Document, Field, Value, solr_type, solr_value
from indexer.peer import Edits
from indexer.processor import DeadLetter, Quarantine, Refused, Tally
from indexer.wire import PUT, Write

ROWS_AT_A_TIME = 500
_ATTEMPTS = 50
# Batches given up whose progress is remembered; a region server has one per region under way.
_UNFINISHED = 16

Column = tuple[bytes, bytes]
Cells = Mapping[Column, bytes]


class ForeignRow(NamedTuple):
    """A row as HBase has it now: value by (family, qualifier), and the newest timestamp among them."""

    row: bytes
    cells: Cells
    timestamp: int


class ForeignRows(Protocol):
    """Reads rows (indexer.hbase_foreign); a row that does not exist is left out. Retriable while HBase is away."""

    def rows(self, keys: Sequence[bytes]) -> list[ForeignRow]: ...


class ConditionalCollection(Protocol):
    """A collection that writes on conditions (indexer.solr_collection). Retriable while Solr is away.

    `versions` tells `_version_` of the documents there are, stubs included; `put_if` writes documents that each carry
    `_version_` (-1: must be absent) and returns the keys whose condition failed, and what Solr refused. `keys_of`
    finds the documents of a row, visible or not yet.
    """

    def ensure_fields(self, wanted: Iterable[Field]) -> bool: ...
    def post(self, documents: Sequence[Document], *, backlog: bool = False) -> list[Refused]: ...
    def versions(self, keys: Sequence[str]) -> dict[str, int]: ...
    def put_if(self, documents: Sequence[Document]) -> tuple[set[str], list[Refused]]: ...
    def keys_of(self, row: str) -> list[str]: ...


class ForeignMapper:
    """Rows of a foreign table → documents. Pure, so safe to share."""

    def __init__(self, table: ForeignTable, search: Iterable[str]) -> None:
        self._table, self._search = table, tuple(search)
        self._decoders = {field.name: decoder(field.type) for field in table.fields}
        made = [
            Field(name=field.name, type=solr_type(field.type.kind), stored=True, many=field.many)
            for field in table.fields
        ]
        words = [Field(name=fields.words_field(name), type="words", stored=False, many=True) for name in self._search]
        self.fields = (*made, *words, Field(name=fields.ROW_KEY, type="string", stored=True))

    def key(self, row: bytes, column: Column | None = None) -> str:
        """The document's id: the row key, or with hyphens between row, family and qualifier; Skippable when it is no
        text."""
        if column is None:
            return self._text(row)
        return "-".join(self._text(part, within=True) for part in (row, *column))

    def documents(self, row: bytes, cells: Cells, *, version: int, now_ms: int) -> dict[str, Document]:
        """The documents that a row makes, by id; Skippable with the column that can not be read."""
        if self._table.mapping == "column":
            return {
                self.key(row, column): self._document(row, {column: value}, version, now_ms, column)
                for column, value in cells.items()
                if self.wants(column)
            }
        if not any(self.wants(column) for column in cells):
            return {}
        return {self.key(row): self._document(row, cells, version, now_ms, None)}

    def concerns(self, write: Write) -> bool:
        """Whether a write may change a document."""
        return self._table.covers(write.row) and write.family.decode(errors="replace") in self._table.families

    def stub(self, key: str, row: bytes, *, version: int) -> Document:
        """What stays of a document that is gone."""
        return {fields.UNIQUE_KEY: key, fields.FENCE: version, fields.ROW_KEY: row.hex()}

    def wants(self, column: Column) -> bool:
        """Whether a field is made of a column."""
        return any(field.matches(*column) for field in self._table.fields if field.family)

    def _document(self, row: bytes, cells: Cells, version: int, now_ms: int, column: Column | None) -> Document:
        document: Document = {
            fields.UNIQUE_KEY: self.key(row, column),
            fields.FENCE: version,
            fields.KIND: fields.ROW,
            fields.TS: version // 2,
            fields.INDEXED_AT: now_ms,
            fields.ROW_KEY: row.hex(),
        }
        for field in self._table.fields:
            values = list(self._values(field, row, cells))
            if values:
                document[field.name] = values if field.many else values[-1]  # type: ignore[assignment]  # a list of them
        for name in self._search:
            if name in document:
                document[fields.words_field(name)] = document[name]
        return document

    def _values(self, field: ForeignField, row: bytes, cells: Cells) -> Iterator[Value]:
        sources: Iterable[bytes]
        if not field.family:
            sources = [row]
        else:
            found = sorted((q, value) for (f, q), value in cells.items() if field.matches(f, q))
            prefix = len(field.qualifier.encode()) - 1 if field.many else 0
            sources = [q[prefix:] if field.take == "qualifier" else value for q, value in found]
        for stored in sources:
            try:
                value = self._decoders[field.name](stored)
            except (ValueError, OverflowError, IndexError, struct.error) as error:
                where = "row key" if not field.family else f"{field.family}:{field.qualifier}"
                raise Skippable(
                    f"field {field.name}: {where} is no {field.type}: {stored[:40].hex()}: {error}"
                ) from error
            if value is not None:
                yield solr_value(field.type.kind, value)

    def _text(self, part: bytes, *, within: bool = False) -> str:
        if self._table.unique_key == "hex":
            return part.hex()
        try:
            text = part.decode()
        except UnicodeDecodeError as error:
            raise Skippable(f"row key {part.hex()} is no UTF-8: set unique_key: hex") from error
        return text.replace("-", "\\-") if within else text


@dataclasses.dataclass(slots=True)
class _Progress:
    """How far a batch is that was given up: rows done, and their letters, which Kafka does not hold yet."""

    done: set[bytes] = dataclasses.field(default_factory=set)
    letters: list[DeadLetter] = dataclasses.field(default_factory=list)
    tally: Tally = dataclasses.field(default_factory=Tally)


class ForeignProcessor:
    """Indexes the edits of a foreign table; the counterpart of `indexer.processor.Processor`, with its contract."""

    def __init__(
        self,
        table: ForeignTable,
        *,
        search: Sequence[str],
        rows: ForeignRows,
        collection: ConditionalCollection,
        quarantine: Quarantine,
        clock_ms: Callable[[], int],
        monotonic: Callable[[], float],
    ) -> None:
        self._table, self._rows, self._collection, self._quarantine = table, rows, collection, quarantine
        self._name = table.table.removeprefix("default:").encode()
        self._mapper = ForeignMapper(table, search)
        self._clock_ms, self._monotonic = clock_ms, monotonic
        self._fields_known = False
        self._unfinished: dict[int, _Progress] = {}

    def process(self, edits: Edits, *, give_up: float) -> Tally:
        """Index a batch; Retriable when a server is away or `give_up` (monotonic) has passed.

        The batch comes again then and goes on where it was: a row that was read behind an event shows the event.
        Without this, a batch that takes longer than HBase waits would begin anew for ever.
        """
        fingerprint = edits.fingerprint
        progress = self._unfinished.pop(fingerprint, None) or _Progress()
        try:
            self._run(edits, progress, give_up)
        except TailorbirdError:
            self._unfinished[fingerprint] = progress
            while len(self._unfinished) > _UNFINISHED:
                self._unfinished.pop(next(iter(self._unfinished)), None)
            raise
        return progress.tally

    def _run(self, edits: Edits, progress: _Progress, give_up: float) -> None:
        touched: dict[bytes, list[Write]] = {}
        for table, writes in edits.writes():
            if table == self._name:
                for write in writes:
                    if self._mapper.concerns(write):
                        touched.setdefault(write.row, []).append(write)
        keys = [row for row in touched if row not in progress.done]
        for start in range(0, len(keys), ROWS_AT_A_TIME):
            if self._monotonic() > give_up:
                raise Retriable(f"a batch takes longer than HBase waits, {len(progress.done)} rows are indexed")
            some, tally = keys[start : start + ROWS_AT_A_TIME], Tally()
            if self._table.read_row == "never":
                progress.letters += self._post_events({key: touched[key] for key in some}, tally)
            else:
                progress.letters += self._complete({key: _columns(touched[key]) for key in some}, tally)
            progress.done.update(some)
            progress.tally.accepted += tally.accepted
        self._bury(progress.letters, progress.tally)

    def index_rows(self, changes: Iterable[RowChange]) -> Tally:
        """Index rows as they are in HBase now, whatever the changes say of them."""
        tally = Tally()
        keys: dict[bytes, set[Column]] = {change.row: set() for change in changes if self._table.covers(change.row)}
        self._bury(self._complete(keys, tally), tally)
        return tally

    def _bury(self, letters: list[DeadLetter], tally: Tally) -> None:
        if letters:
            self._quarantine.put(letters)
            tally.dead = len(letters)

    def _complete(self, touched: Mapping[bytes, set[Column]], tally: Tally) -> list[DeadLetter]:
        """Bring the documents of some rows to what HBase has, by read and compare-and-set; `touched` names the columns
        that an event wrote or deleted."""
        self._ensure_fields()
        letters: list[DeadLetter] = []
        waiting = touched
        for _ in range(_ATTEMPTS):
            if not waiting:
                return letters
            waiting = {row: touched[row] for row in self._attempt(waiting, tally, letters)}
        raise Retriable(f"{len(waiting)} rows are written faster than they can be indexed")

    def _attempt(self, keys: Mapping[bytes, set[Column]], tally: Tally, letters: list[DeadLetter]) -> list[bytes]:
        """Rows whose documents others wrote meanwhile: to be done again."""
        ids, owners, unnamed = self._known_ids(keys)
        letters += unnamed
        # In this order: the version is taken before the row is read, never after.
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
                letters.append(_letter(row, present.cells, 2 * present.timestamp, error.message))
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
                # Gone, or never seen: then too, or another indexer that has read the row before it went would still
                # write it on condition of "absent".
                documents.append({**self._mapper.stub(key, row, version=2 * now_ms + 1), "_version_": version})
        conflicts, refused = self._collection.put_if(documents)
        tally.accepted += len(documents) - len(conflicts) - len(refused)
        for each in refused:
            row = owners[str(documents[each.position][fields.UNIQUE_KEY])]
            present = found.get(row)
            letters.append(_letter(row, present.cells if present else {}, 0, each.reason))
        return [*dict.fromkeys([*(owners[key] for key in conflicts), *again])]

    def _known_ids(self, keys: Mapping[bytes, set[Column]]) -> tuple[list[str], dict[str, bytes], list[DeadLetter]]:
        """The ids that rows have or had, each with its row; those of a column mapping are asked of both sides."""
        owners: dict[str, bytes] = {}
        letters: list[DeadLetter] = []
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
                letters.append(_letter(row, {}, 0, error.message))
        return list(owners), owners, letters

    def _post_events(self, touched: Mapping[bytes, list[Write]], tally: Tally) -> list[DeadLetter]:
        """Take what was written for the whole row, fenced by its timestamps; nothing is read."""
        self._ensure_fields()
        letters: list[DeadLetter] = []
        documents: list[tuple[bytes, Document]] = []
        now_ms = self._clock_ms()
        for row, writes in touched.items():
            cells, version, gone = _merged(row, writes)
            try:
                if gone:
                    if self._table.mapping == "column":
                        raise Skippable("a row delete under mapping: column needs read_row: dynamic")
                    documents.append((row, self._mapper.stub(self._mapper.key(row), row, version=version)))
                elif not cells or any(write.type != PUT for write in writes):
                    raise Skippable("a delete of cells under read_row: never leaves the rest of the row unknown")
                else:
                    made = self._mapper.documents(row, cells, version=version, now_ms=now_ms)
                    documents += [(row, document) for document in made.values()]
            except Skippable as error:
                letters.append(_letter(row, cells, version, error.message))
        refused = self._collection.post([document for _, document in documents])
        letters += [_letter(documents[each.position][0], {}, 0, each.reason) for each in refused]
        tally.accepted += len(documents) - len(refused)
        return letters

    def _ensure_fields(self) -> None:
        if not self._fields_known:
            self._collection.ensure_fields(self._mapper.fields)
            self._fields_known = True


def _merged(row: bytes, writes: Sequence[Write]) -> tuple[dict[Column, bytes], int, bool]:
    """Cells alive, version and whether the row is gone, over all its families."""
    cells: dict[Column, bytes] = {}
    changes = []
    for family in dict.fromkeys(write.family for write in writes):
        [change] = collapse(writes, family)
        changes.append(change)
        cells.update({(family, qualifier): value for qualifier, value in change.cells.items()})
    gone = not cells and all(change.deleted for change in changes)
    return cells, max(change.version for change in changes), gone


def _columns(writes: Sequence[Write]) -> set[Column]:
    """The columns that writes name; a delete of a family names none, and the log's order alone guards it."""
    return {(write.family, qualifier) for write in writes for qualifier in write.cells if qualifier}


def _letter(row: bytes, cells: Cells, version: int, reason: str) -> DeadLetter:
    named = {family + b":" + qualifier: value for (family, qualifier), value in cells.items()}
    return DeadLetter(row=row, version=version, cells=named, reason=reason)


class EachProcessor:
    """Several collections of one foreign table: each is written on conditions of its own."""

    def __init__(self, processors: Sequence[ForeignProcessor]) -> None:
        self._processors = tuple(processors)

    def process(self, edits: Edits, *, give_up: float) -> Tally:
        """As `ForeignProcessor.process`, into each; the tally of the first."""
        tallies = [each.process(edits, give_up=give_up) for each in self._processors]
        return tallies[0]

    def index_rows(self, changes: Iterable[RowChange]) -> Tally:
        """As `ForeignProcessor.index_rows`, into each; the tally of the first."""
        rows = list(changes)
        tallies = [each.index_rows(rows) for each in self._processors]
        return tallies[0]
