"""Turn messages of pgoutput into log events. A feed supplies the messages.

Consecutive rows of one table become one event. A change without its whole row becomes a RowsPartial: the server omits
large values that an UPDATE did not set, and logs the old row only under REPLICA IDENTITY FULL. Under other replica
identities an UPDATE may have no old row at all; `before` is then None.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping
from typing import Any, Protocol

from cdc.model.errors import Skippable
from cdc.model.event import Position
from cdc.model.schema import TableId
from ingest.events.log_events import (
    CAUGHT_UP,
    Image,
    LogEvent,
    Operation,
    RefusedImage,
    Row,
    RowsLogged,
    RowsNotLogged,
    RowsPartial,
    TableAltered,
    TableEmptied,
    TableInvalidated,
    TransactionBegan,
    TransactionEnded,
    TransactionLogged,
)
from ingest.events.tables import Tables
from ingest.postgres import messages
from ingest.postgres.column_types import PgTypes
from ingest.postgres.harmless import reports_whole_rows
from ingest.postgres.messages import NEW_ROW, OLD_KEY, OLD_ROW, U32
from ingest.postgres.relations import Describe, RelationRows, definition_of_relation, keyed, unlike
from ingest.records.capture_interfaces import Checkpoint

MOST = 500  # maximum rows per event
_BEGIN, _COMMIT, _RELATION, _INSERT, _UPDATE, _DELETE, _EMPTIED = b"BCRIUDT"
WATCHED = "watched"  # key of `PgWatch.state` in a checkpoint
_IGNORED = frozenset(b"OYM")  # origins, names of types, messages of other applications


class Feed(Protocol):
    """Endless iterator over messages of one slot: bytes of pgoutput, or a position up to which the server has read its
    log.

    It yields None if no message is waiting.
    """

    def __iter__(self) -> Iterator[bytes | int | None]: ...


class CatalogWatch(Protocol):
    """Source of catalog changes that the log does not contain; `pg_watch.PgWatch` implements it."""

    @property
    def state(self) -> Mapping[str, Any]:
        """Return the known state of the catalog, for a checkpoint."""

    def due(self, place: int) -> list[tuple[TableId, int, str]]:
        """Return (table, OID, reason) of tables to re-read, after the log was read up to `place`."""


class PgEvents:
    """Iterator over the log events of one feed, from a checkpoint on.

    `log` identifies the server's log. `idle` returns whether the next message would have to be waited for.
    `describe(oid)` returns a table from the present catalog. Tables in `left_out` are skipped. `full`: consumers need
    before images.
    """

    gtid_set = ""

    def __init__(
        self,
        feed: Feed,
        tables: Tables,
        types: PgTypes,
        describe: Describe,
        start: Checkpoint,
        *,
        log: str,
        idle: Callable[[], bool],
        streamed: Callable[[int], None],
        watch: CatalogWatch | None = None,
        left_out: Container[tuple[str, str]] = (),
        full: bool = False,
    ) -> None:
        self._feed, self._tables, self._types, self._describe = feed, tables, types, describe
        self._log, self._idle, self._streamed = log, idle, streamed
        self._place = start.position.pos
        # rows to skip of a transaction that was published in part
        self._published = start.position.row if start.open is not None else 0
        self._relations: dict[int, RelationRows | None] = {}
        self._fresh: set[int] = set()
        self._keys: dict[int, tuple[TableId, tuple[str, ...]]] = {}
        self._watch, self._left_out, self._full = watch, left_out, full
        self._roots: dict[int, bool] = {}  # by partitioned table: whether all its partitions have REPLICA IDENTITY FULL
        self._lsn = 0
        self._began: TransactionBegan | None = None
        self._table: TableId | None = None
        self._operation: Operation = "insert"
        self._whole = self._plain = True
        self._rows: list[Any] = []

    @property
    def place(self) -> tuple[str, int]:
        """Return the identity of the server's log, and the position up to which it was read."""
        return self._log, self._place

    @property
    def state(self) -> dict[str, Any]:
        """Return what a checkpoint needs to resume the stream, in addition to the position. Implements `Stream`."""
        return {} if self._watch is None else {WATCHED: self._watch.state}

    def reached(self, position: Position) -> bool:
        """Return whether everything up to a position has been read."""
        return self._place >= position.pos

    def __iter__(self) -> Iterator[LogEvent]:
        inside = False
        for data in self._feed:
            if data is None:
                if not inside:
                    yield from self._noticed()
                    if self._idle():
                        yield CAUGHT_UP
                continue
            if isinstance(data, int):
                if not inside and data > self._place:
                    self._place = data
                continue
            kind = data[0]
            if kind in (_INSERT, _UPDATE, _DELETE):
                yield from self._changed(kind, data)
            elif kind == _BEGIN:
                began = messages.begin(data)
                inside, self._lsn = True, began.lsn
                self._streamed(began.xid)
                self._began = TransactionBegan("", began.commit_us, 0, self._log, began.lsn)
            elif kind == _COMMIT:
                inside, self._published = False, 0
                yield from self._ended(messages.commit(data).end)
                yield from self._noticed()
            elif kind == _RELATION:
                self._met(messages.relation(data))
            elif kind == _EMPTIED:
                yield from self._flushed()
                yield from self._truncated(messages.emptied(data).oids)
            elif kind not in _IGNORED:
                yield from self._hidden(f"pgoutput sent a message of the unknown type {data[:1]!r}")

    def _noticed(self) -> Iterator[LogEvent]:
        """Yield the re-reads of tables whose catalog has changed in a way that the log does not contain."""
        for table, oid, why in self._watch.due(self._place) if self._watch is not None else ():
            shown = self._describe(oid)
            known = self._tables.catalog.tables.get((table.database, table.table))
            # the log describes the columns only before the table's next row
            if shown is not None and unlike(shown.definition, known):
                yield TableAltered(table, shown.definition)
            yield TableInvalidated(table, why)

    def _hidden(self, why: str) -> Iterator[LogEvent]:
        """Yield a re-read of all tables, because a part of the log cannot be decoded."""
        yield from self._flushed()
        yield from self._opened()
        yield RowsNotLogged(None, why, "incident")

    def _ended(self, place: int) -> Iterator[LogEvent]:
        """Yield the end of a transaction. One that has only rows of one table becomes one event, which is much
        faster."""
        ended = TransactionEnded(self._log, place)
        if self._began is not None and self._rows and self._whole and self._table is not None:
            began, rows, self._began, self._rows = self._began, self._rows, None, []
            logged = RowsLogged(self._table, self._operation, rows, self._plain, self._log, self._lsn)
            self._table, self._place = None, place
            yield TransactionLogged(began, logged, ended)
            return
        yield from self._flushed()
        yield from self._opened()
        self._place = place
        yield ended

    def _opened(self) -> Iterator[LogEvent]:
        """Yield the begin of the transaction, unless it was yielded before."""
        if self._began is not None:
            began, self._began = self._began, None
            yield began

    def _met(self, relation: messages.LoggedRelation) -> None:
        wanted = (relation.schema, relation.table) not in self._left_out
        wanted = wanted and self._tables.captured(relation.schema, relation.table)
        self._relations[relation.oid] = RelationRows(relation, self._types) if wanted else None
        self._fresh.add(relation.oid)
        self._keys.pop(relation.oid, None)

    def _described(self, oid: int, rows: RelationRows, table: TableId) -> Iterator[LogEvent]:
        """Yield the description of a table before its next row, rather than at its relation message.

        After a restart, a partly published transaction repeats its relation messages, also outdated ones.
        """
        self._fresh.discard(oid)
        known = self._tables.catalog.tables.get((table.database, table.table))
        shown = self._describe(oid)
        self._roots.pop(oid, None)
        if shown is not None and shown.partitioned:
            self._roots[oid] = reports_whole_rows(shown.members)
        definition = definition_of_relation(rows, shown, known)
        if unlike(definition, known):
            yield from self._flushed()
            yield from self._opened()
            yield TableAltered(table, definition)

    def _changed(self, kind: int, data: bytes) -> Iterator[LogEvent]:
        oid = U32(data, 1)[0]
        rows = self._relations.get(oid)
        if rows is None:
            if oid not in self._relations:
                yield from self._hidden(f"pgoutput sent rows of the relation {oid}, which it has not described")
            return
        last = False
        if self._published:
            self._published -= 1
            last = not self._published
        elif oid in self._fresh:
            yield from self._described(oid, rows, self._id(rows))
        known = self._keys.get(oid)
        found = known if known is not None else self._key(oid, rows)
        if found is None:
            return
        table, key = found
        if kind == _INSERT:
            change, whole, plain = self._inserted(rows, data)
            operation: Operation = "insert"
        elif kind == _UPDATE:
            change, whole, plain = self._updated(rows, data, key)
            operation = "update"
        else:
            change, whole, plain = self._deleted(rows, data, key)
            operation = "delete"
        if (
            table != self._table or operation != self._operation or whole != self._whole or plain != self._plain
            or len(self._rows) >= MOST
        ):  # fmt: skip
            yield from self._flushed()
            self._table, self._operation, self._whole, self._plain = table, operation, whole, plain
        self._rows.append(change)
        if last:
            yield from self._flushed()

    def _flushed(self) -> Iterator[LogEvent]:
        """Yield the rows collected so far as one event."""
        if self._rows and self._table is not None:
            yield from self._opened()
            rows, self._rows = self._rows, []
            if self._whole:
                yield RowsLogged(self._table, self._operation, rows, self._plain, self._log, self._lsn)
            else:
                yield RowsPartial(self._table, self._operation, rows, self._log, self._lsn)
        self._table = None

    def _inserted(self, rows: RelationRows, data: bytes) -> tuple[Any, bool, bool]:
        try:
            return rows.row(data, 6)[0], True, True
        except (ValueError, ArithmeticError):
            return rows.judged(data, 6)[0], True, False

    def _updated(self, rows: RelationRows, data: bytes, key: tuple[str, ...]) -> tuple[Any, bool, bool]:
        before: Image | None = None
        at, plain, kind = 6, True, data[5]
        if kind != NEW_ROW:
            before, at = rows.keyed(data, at) if kind == OLD_KEY else self._image(rows, data, at)
            plain = not isinstance(before, RefusedImage)
            at += 1
            if kind == OLD_ROW and not self._is_whole(rows, before, key):
                before, kind = keyed(before, key), OLD_KEY
        after, _ = self._image(rows, data, at)
        old, new = _values(before), _values(after)
        if kind == OLD_ROW and len(new) < rows.width:
            unknown = {name: value for name, value in old.items() if name not in new}
            new.update(unknown)
            # a value that is refused in the old row is refused in the new one, too
            if isinstance(before, RefusedImage):
                refused = {name: why for name, why in before.columns.items() if name in unknown}
                if isinstance(after, RefusedImage):
                    after.columns.update(refused)
                elif refused:
                    after = RefusedImage(values=new, columns=refused)
        whole = len(_values(after)) >= rows.width and (kind == OLD_ROW or not self._needs_before(rows))
        plain = plain and not isinstance(after, RefusedImage)
        named = {name: (old if name in old else new).get(name) for name in key}
        if kind != OLD_ROW and named == {name: new.get(name) for name in key}:
            # only the key of the old row is known, which retractions and re-reads need
            before = None if whole and plain else keyed(after, key)
        return (before, after), whole, plain

    def _deleted(self, rows: RelationRows, data: bytes, key: tuple[str, ...]) -> tuple[Any, bool, bool]:
        kind = data[5]
        image, _ = rows.keyed(data, 6) if kind == OLD_KEY else self._image(rows, data, 6)
        whole = True
        if kind == OLD_ROW and not self._is_whole(rows, image, key):
            image, whole = keyed(image, key), not self._full
        return image, whole, not isinstance(image, RefusedImage)

    def _is_whole(self, rows: RelationRows, old: Image, key: tuple[str, ...]) -> bool:
        """Return whether an old row is complete.

        A partition logs by its own replica identity, but its rows are sent as rows of its root table. If a partition
        logs only its key, all other columns arrive as NULL.
        """
        trusted = self._roots.get(rows.relation.oid)
        if trusted is None:
            return True
        others = [value for name, value in _values(old).items() if name not in key]
        return trusted and (not others or any(value is not None for value in others))

    def _needs_before(self, rows: RelationRows) -> bool:
        """Return whether consumers need before images. A missing one is then found by a search of the topic."""
        return self._full and rows.relation.identity == "f"

    def _image(self, rows: RelationRows, data: bytes, at: int) -> tuple[Image, int]:
        try:
            return rows.row(data, at)
        except (ValueError, ArithmeticError):
            return rows.judged(data, at)

    def _id(self, rows: RelationRows) -> TableId:
        return TableId(source=self._tables.source, database=rows.relation.schema, table=rows.relation.table)

    def _key(self, oid: int, rows: RelationRows) -> tuple[TableId, tuple[str, ...]] | None:
        """Return the table, and the columns of its record key; None if it is left out."""
        table = self._id(rows)
        try:
            found = table, self._tables.schema(table).primary_key
        # `Tables.left_out` reports it with the other tables that are left out
        except Skippable:
            self._relations[oid] = None
            return None
        if oid not in self._fresh:
            self._keys[oid] = found
        return found

    def _truncated(self, oids: tuple[int, ...]) -> Iterator[LogEvent]:
        for oid in oids:
            rows = self._relations.get(oid)
            if rows is None:
                continue
            table = self._id(rows)
            if self._published:
                self._published -= 1
            elif oid in self._fresh:
                yield from self._described(oid, rows, table)
            yield from self._opened()
            yield TableEmptied(table, self._log, self._lsn)


def _values(image: Image | None) -> Row:
    if image is None:
        return {}
    return image.values if isinstance(image, RefusedImage) else image
