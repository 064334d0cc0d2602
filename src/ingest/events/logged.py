"""Turn raw events of a binary log into log events, in commit order. The reader supplies the raw events.

Rows are withheld until their transaction is committed: at its end, or at XA COMMIT if it was prepared. Rows that cannot
be decoded become RowsQuarantined. Changes without complete images are yielded, too, so that the tables are repaired.
Images that lack columns are RowsPartial. RowsNotLogged stands for a statement logged as text, an incident of the
server, an event of unknown type, an XA transaction whose rows are no longer in the log, or the published part of a
transaction that is rolled back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from itertools import chain
from struct import error as StructError
from typing import Any

from cdc.model.event import Position
from cdc.model.identifiers import fold_table
from cdc.model.schema import TableId
from ingest.binlog import BinlogReader
from ingest.binlog.format.codes import HEADER_SIZE, ROWS_EVENTS, EventType, event_name
from ingest.binlog.format.errors import BinlogError, UnsupportedEvent
from ingest.binlog.format.gtid import AnyGtidSet, covers
from ingest.binlog.format.packed import U32, U64
from ingest.binlog.reading.effects import changes_rows
from ingest.binlog.reading.events import Query, RawEvent
from ingest.binlog.reading.parse import commit_micros, maria_gtid_identity, parse_event
from ingest.binlog.reading.position import GTID_EVENTS
from ingest.binlog.reading.written import fills, loaded, written
from ingest.events.log_events import (
    CAUGHT_UP,
    LogEvent,
    NotLoggedReason,
    RowsLogged,
    RowsNotLogged,
    RowsPartial,
    StatementLogged,
    TransactionBegan,
    TransactionEnded,
    TransactionLogged,
)
from ingest.events.prepared import PreparedTransaction, PreparedTransactions, xid_of_event, xid_of_statement
from ingest.events.row_events import ENVELOPE, OPERATION, RowEvents, RowsEvent
from ingest.events.tables import Tables
from ingest.events.withheld import WithheldRows

__all__ = ["ENVELOPE", "BinlogEvents"]
T = EventType
# Contents of LOAD DATA files in a statement-based log; the statement follows.
_FILE_PARTS = frozenset({int(T.BEGIN_LOAD_QUERY), int(T.APPEND_BLOCK), int(T.DELETE_FILE)})
_QUERIES = frozenset({int(T.QUERY), int(T.MARIA_QUERY_COMPRESSED)})
_PREPARED_XA = 64  # flag of MariaDB's GTID event: the group is a prepared XA transaction
ReadAgain = Callable[[PreparedTransaction, AnyGtidSet | None], AbstractContextManager[BinlogReader]]


class BinlogEvents:
    """Iterator over the log events of one reader. `idle` returns whether the next event would have to be waited for.

    `state` is that of the checkpoint: it contains the prepared XA transactions. `read_again` opens the log at the begin
    of one of them. Without it, or if that fails, the tables are re-read.
    """

    def __init__(
        self,
        reader: BinlogReader,
        tables: Tables,
        idle: Callable[[], bool],
        state: Mapping[str, Any] | None = None,
        read_again: ReadAgain | None = None,
    ) -> None:
        self._reader, self._tables, self._idle = reader, tables, idle
        self._stream = reader.stream
        self._rows = RowEvents(reader.stream, tables)
        self._prepared, self._read_again = PreparedTransactions(state or {}, tables.source), read_again
        self._withheld = WithheldRows()
        # Events before this place are already processed, although a server that is queried by GTIDs sends them again:
        # events outside transactions, after the last processed transaction. None once a transaction has begun.
        self._done: tuple[str, int] | None = self.place
        self._began_at = TransactionBegan("", 0, 0, "", 0)
        self._before: AnyGtidSet | None = None
        # Open transaction: whether there is one, whether it is XA, and whether rows of it are missing in memory.
        self._open = self._xa = self._spilled = self._releasing = False
        self._texts: list[RowsNotLogged] = []  # statements in a transaction that may be prepared

    @property
    def gtid_set(self) -> str:
        """Return the transactions that ended, without one whose rows are being yielded; empty without GTIDs."""
        known = self._before if self._releasing else self._stream.progress.gtids
        return str(known) if known is not None else ""

    @property
    def place(self) -> tuple[str, int]:
        """Return where the next event begins."""
        return self._stream.progress.file, self._stream.progress.position

    @property
    def state(self) -> dict[str, Any]:
        """Return the prepared XA transactions for a checkpoint, as in `capture_interfaces.Stream`."""
        return self._prepared.state

    def reached(self, position: Position) -> bool:
        """Return whether everything up to a position has been read."""
        progress = self._stream.progress
        known = progress.gtids
        if position.gtid_set and known is not None:
            return covers(known, type(known).parse(position.gtid_set))
        return (progress.file, progress.position) >= (position.file, position.pos)

    def __iter__(self) -> Iterator[LogEvent]:
        progress, idle = self._stream.progress, self._idle
        raw: RawEvent | None = None
        try:
            for raw in self._reader.raw_events():
                code = raw[0]
                if code in ROWS_EVENTS:
                    event = self._rows.event(raw)
                    if event is not None and self._withhold(event):
                        yield from chain.from_iterable(map(self._rows.log_events, self._withheld.take()))
                    continue
                if code == 19:  # TABLE_MAP
                    found = self._rows.map(raw)
                    if found is not None:
                        yield found
                    continue
                if code == 16:  # XID
                    yield from self._committed()
                    yield from self._ended()
                    yield from self._transactions()
                elif code in GTID_EVENTS:
                    yield self._began(raw)
                    continue
                elif code in _QUERIES:
                    if progress.framing:
                        self._xa = self._xa or not raw.data.endswith(b"BEGIN")
                        continue
                    yield from self._statement(raw)
                elif code == 38:  # XA_PREPARE
                    yield from self._prepare(raw)
                    yield from self._ended()
                else:
                    yield from self._other(raw)
                if not progress.in_transaction and idle():
                    yield CAUGHT_UP
        except (StructError, IndexError, ValueError) as error:
            if raw is None:
                raise
            raise self._stream.broken(raw, error) from error

    def _began(self, raw: RawEvent) -> TransactionBegan:
        self._withheld, self._done = WithheldRows(), None
        self._texts.clear()
        self._open, self._spilled = True, False
        self._xa = raw.code == T.MARIA_GTID and bool(maria_gtid_identity(raw.data[HEADER_SIZE:])[2] & _PREPARED_XA)
        self._before = self._stream.progress.gtids
        self._began_at = TransactionBegan(
            self._stream.progress.gtid, commit_micros(raw), U32(raw.data, 5)[0], raw.file, raw.offset
        )
        return self._began_at

    def _ended(self) -> Iterator[LogEvent]:
        self._open = False
        yield TransactionEnded(self._stream.progress.file, self._stream.progress.position)

    def _withhold(self, event: RowsEvent) -> bool:
        """Withhold an event until commit. Returns True if the transaction is too large and must be published in parts.

        A large XA transaction is not published in parts, but read again from the log at XA COMMIT.
        """
        if not self._withheld.add(event) and not self._xa:
            return False
        if self._xa and not self._prepared.room(self._withheld.bytes):
            self._withheld.take()
            self._spilled = True
        return not self._xa

    def _committed(self) -> Iterator[LogEvent]:
        """Yield the rows of the open transaction at its commit."""
        self._releasing = True
        yield from chain.from_iterable(map(self._rows.log_events, self._withheld.take()))
        self._releasing = False

    def _rolled_back(self) -> Iterator[LogEvent]:
        """Drop the rows of the open transaction; report the tables of which rows were already published."""
        if tables := self._withheld.undo():
            yield _again(tables, "rollback", f"a transaction of {self._began_at.file}:{self._began_at.pos}")

    def _transactions(self) -> Iterator[LogEvent]:
        """Yield buffered transactions of one rows event each, much faster than event by event."""
        buffer = self._reader.whole_buffer()
        if buffer is None:
            return
        progress, known, file, new = self._stream.progress, self._rows.known, buffer.file, tuple.__new__
        for found in self._reader.whole.transactions(buffer):
            identity, commit_us, server_id, decoder, code, rows, begin, pos, _, end, _, _ = found
            gtid = f"{identity[0]}:{identity[2]}" if identity is not None else ""
            began = new(TransactionBegan, (gtid, commit_us, server_id, file, begin))
            ended = new(TransactionEnded, (file, end))
            if rows is None:
                yield began
                progress.close(identity, file, end)
                yield ended
                continue
            table, width = known[decoder]
            operation = OPERATION[code]
            if operation != "update":
                whole = len(rows[0]) >= width
            else:
                before, after = rows[0]
                whole = len(before) >= width and len(after) >= width
            if not whole:
                yield began
                yield RowsPartial(table, operation, rows, file, pos)
                progress.close(identity, file, end)
                yield ended
                continue
            progress.close(identity, file, end)
            logged = new(RowsLogged, (table, operation, rows, True, file, pos))
            yield new(TransactionLogged, (began, logged, ended))
        self._reader.took_whole()

    def _statement(self, raw: RawEvent) -> Iterator[LogEvent]:
        """Handle a statement. It is a transaction of its own, unless it is inside one."""
        progress = self._stream.progress
        query = parse_event(raw)
        assert isinstance(query, Query), "a query event parses to Query"
        sql = query.text.strip()
        first = sql[:12].upper()
        if first.startswith(("COMMIT", "ROLLBACK", "SAVEPOINT", "RELEASE", "XA ")):
            yield from self._control(sql, first, raw)
        elif not self._tables.concerns(query.database, sql):
            pass
        elif changes_rows(sql) and self._xa:
            self._texts.append(self._unknown(query.database, sql))  # a re-read before XA COMMIT would not see its rows
        elif changes_rows(sql):
            yield self._unknown(query.database, sql)
        else:
            yield StatementLogged(query.database, sql, query.thread_id, _sql_mode(query.status))
            if fills(sql):
                yield self._unknown(query.database, sql)
        if not progress.in_transaction:
            yield from self._committed()
            yield from self._ended()

    def _control(self, sql: str, first: str, raw: RawEvent) -> Iterator[LogEvent]:
        """Handle a statement that controls transactions: COMMIT, ROLLBACK, SAVEPOINT or XA."""
        if first.startswith("ROLLBACK") and not self._stream.progress.in_transaction:
            yield from self._rolled_back()
        elif first.startswith("XA "):
            named = xid_of_statement(sql)
            if named is None:
                pass
            elif named[0] == "COMMIT":
                yield from self._commit_prepared(named[1], raw)
            elif named[0] == "ROLLBACK":
                yield from self._rolled_back()
                self._prepared.remove(named[1])
        elif (tables := self._withheld.control(sql)) and not self._xa:
            yield _again(tables, "rollback", f"a part of the transaction of {self._began_at.file}:{self._began_at.pos}")

    def _prepare(self, raw: RawEvent) -> Iterator[LogEvent]:
        """Handle XA_PREPARE: the XA transaction is prepared, or committed at once in one phase."""
        at_once, xid = xid_of_event(raw.data)
        withheld, began = self._withheld, self._began_at
        transaction = PreparedTransaction(
            xid=xid,
            gtid=began.gtid,
            file=began.file,
            pos=began.pos,
            since_ms=began.commit_us // 1000,
            tables=self._changed(withheld.tables),
            events=None if self._spilled else tuple(withheld.events),
            unknown=tuple(self._texts),
        )
        self._texts.clear()
        withheld.undo()
        if not at_once:
            self._prepared.add(transaction)
            return
        self._releasing = True
        yield from self._facts_of(transaction, raw)
        self._releasing = False

    def _changed(self, tables: tuple[TableId, ...]) -> tuple[TableId, ...]:
        """Return these tables together with those changed by statements that were logged as text."""
        if not self._texts:
            return tables
        named = {name for text in self._texts for name in text.tables or ()}
        unnamed = any(text.tables is None for text in self._texts)
        captured = [schema.table_id for schema in self._tables.schemas()]
        more = captured if unnamed else [table for table in captured if fold_table(table) in named]
        return tuple(dict.fromkeys((*tables, *more)))

    def _commit_prepared(self, xid: str, raw: RawEvent) -> Iterator[LogEvent]:
        self._releasing = True
        transaction = self._prepared.get(xid)
        if transaction is not None:
            yield from self._facts_of(transaction, raw)
            self._prepared.remove(xid)
        elif not self._withheld.events:
            yield _again(None, "xa", f"an XA transaction committed at {raw.where}, prepared before what was read")
        self._releasing = False

    def _facts_of(self, transaction: PreparedTransaction, raw: RawEvent) -> Iterator[LogEvent]:
        """Yield the rows of a prepared XA transaction at its commit: from memory, or read again from the log."""
        if transaction.events is not None:
            for event in transaction.events:
                for log_event in self._rows.log_events(event):
                    yield log_event._replace(file=raw.file, pos=raw.offset)
            yield from transaction.unknown
            return
        why = f"an XA transaction committed at {raw.where}, whose rows the log no longer holds at "
        where = f"{transaction.file}:{transaction.pos}"
        try:
            if self._read_again is None:
                raise BinlogError("the log cannot be read twice")
            with self._read_again(transaction, self._before) as reader:
                for log_event in BinlogEvents(reader, self._tables, lambda: False).group(transaction):
                    yield (
                        log_event
                        if isinstance(log_event, RowsNotLogged)
                        else log_event._replace(file=raw.file, pos=raw.offset)
                    )
        except BinlogError as error:
            yield _again(transaction.tables, "xa", f"{why}{where} ({error.reason})")

    def group(self, transaction: PreparedTransaction) -> Iterator[Any]:
        """Yield the rows of a prepared transaction at the log's current position. Raises BinlogError if it is not
        there."""
        self._xa = False  # the rows are committed, so they are only withheld as long as WithheldRows needs
        for raw in self._reader.raw_events():
            code = raw[0]
            if code in ROWS_EVENTS:
                event = self._rows.event(raw)
                if event is not None and self._withhold(event):
                    yield from chain.from_iterable(map(self._rows.log_events, self._withheld.take()))
            elif code == 19:  # TABLE_MAP
                self._rows.map(raw)
            elif code in GTID_EVENTS:
                self._began(raw)
                self._xa = False
                if self._began_at.gtid != transaction.gtid:
                    raise BinlogError(f"{self._began_at.gtid or 'another transaction'} is there")
            elif code in _QUERIES:
                query = parse_event(raw)
                assert isinstance(query, Query), "a query event parses to Query"
                named = xid_of_statement(query.text)
                if named is not None and named[1] != transaction.xid:
                    raise BinlogError("another XA transaction is there")
                if changes_rows(query.text.strip()) and self._tables.concerns(query.database, query.text):
                    yield self._unknown(query.database, query.text)
                if tables := self._withheld.control(query.text):
                    yield _again(tables, "rollback", f"a part of the transaction of {transaction.file}")
            elif code == 38:  # XA_PREPARE
                if xid_of_event(raw.data)[1] != transaction.xid:
                    raise BinlogError("another XA transaction is there")
                yield from chain.from_iterable(map(self._rows.log_events, self._withheld.take()))
                return
        raise BinlogError("the log ends there")

    def _unknown(self, database: str, sql: str) -> RowsNotLogged:
        names = written(database, sql)
        return RowsNotLogged(None if names is None else tuple(sorted(names)), " ".join(sql[:2000].split())[:200])

    def _other(self, raw: RawEvent) -> Iterator[LogEvent]:
        if raw.code == T.INCIDENT:
            yield from self._lost(raw, "the server reports an incident: its log has a gap")
        elif raw.code == T.EXECUTE_LOAD_QUERY:
            database, sql = loaded(raw.data[HEADER_SIZE:])
            if self._tables.concerns(database, sql) and self._xa:
                self._texts.append(self._unknown(database, sql))
            elif self._tables.concerns(database, sql):
                yield self._unknown(database, sql)
        elif raw.code not in _FILE_PARTS:
            try:
                self._stream.check_known(raw)
            except UnsupportedEvent:
                yield from self._lost(raw, f"{event_name(raw.code)} is an unknown event type that may contain rows")

    def _lost(self, raw: RawEvent, why: str) -> Iterator[LogEvent]:
        """Yield RowsNotLogged for all tables at the event `raw`, in a transaction of its own if none is open."""
        alone = not self._open
        if alone:
            if self._done is not None and (raw.file, raw.offset) < self._done:
                return
            micros = U32(raw.data, 0)[0] * 1_000_000
            yield TransactionBegan("", micros, U32(raw.data, 5)[0], raw.file, raw.offset)
        yield _again(None, "incident", f"{why}, at {raw.where}")
        if alone or not self._stream.progress.in_transaction:
            yield from self._ended()


def _again(tables: tuple[TableId, ...] | None, why: NotLoggedReason, what: str) -> RowsNotLogged:
    return RowsNotLogged(None if tables is None else tuple(sorted(map(fold_table, tables))), what, why)


def _sql_mode(status: bytes) -> int:
    """Return the sql_mode bits of a Query event's status variables: flags (0), then sql_mode (1). 0 if missing."""
    at = 5 if status[:1] == b"\0" else 0
    return int(U64(status, at + 1)[0]) if status[at : at + 1] == b"\1" and len(status) >= at + 9 else 0
