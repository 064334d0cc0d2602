"""Raw events of a binary log → facts. Pure: the reader brings the events, wherever it has them from.

What cannot be decoded is kept as bytes. What changed rows without telling them is told as such: a statement logged as
text (RowsUntold), images without all columns (RowsPartial). Whatever else could hide a change of a captured table is
Fatal with its file and position: an XA transaction that is only prepared, an incident, an event that is not known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NoReturn

from cdc.words.errors import Fatal
from cdc.words.event import Position
from cdc.words.schema import TableId
from ingest.binlog import BinlogReader, Flavour
from ingest.binlog.format.canonical import Unrepresentable
from ingest.binlog.format.codes import DELETES, HEADER_SIZE, INSERTS, ROWS_EVENTS, EventType
from ingest.binlog.format.errors import BinlogError, MissingTableMap
from ingest.binlog.format.gtid import covers
from ingest.binlog.format.packed import U32, U64
from ingest.binlog.reading.effects import changes_rows
from ingest.binlog.reading.events import Query, RawEvent
from ingest.binlog.reading.parse import commit_micros, parse_event
from ingest.binlog.reading.position import GTID_EVENTS
from ingest.binlog.reading.written import fills, loaded, written
from ingest.binlog.rows.rows import TableDecoder
from ingest.facts.columns import described, is_hidden
from ingest.facts.facts import (
    CAUGHT_UP,
    Fact,
    Image,
    Operation,
    RefusedImage,
    RowsKept,
    RowsLogged,
    RowsPartial,
    RowsUntold,
    StatementLogged,
    TableDescribed,
    TransactionBegan,
    TransactionEnded,
    TransactionLogged,
)
from ingest.facts.tables import Tables
from ingest.facts.values import judged

T = EventType
ENVELOPE = Flavour(json="canonical", temporal="canonical", binary="base64", bit="canonical")
_SHOWN = Flavour(json="canonical", temporal="text", binary="base64", bit="canonical")
# The files of LOAD DATA as a log of statements carries them; the statement itself comes behind.
_FILE_PARTS = frozenset({int(T.BEGIN_LOAD_QUERY), int(T.APPEND_BLOCK), int(T.DELETE_FILE)})
_QUERIES = frozenset({int(T.QUERY), int(T.MARIA_QUERY_COMPRESSED)})
OPERATION: dict[int, Operation] = {
    code: "insert" if code in INSERTS else "delete" if code in DELETES else "update" for code in ROWS_EVENTS
}


class LoggedFacts:
    """The facts of one reader; iterate it once. `idle` says whether the next event would have to be waited for."""

    def __init__(self, reader: BinlogReader, tables: Tables, idle: Callable[[], bool]) -> None:
        self._reader, self._tables, self._idle = reader, tables, idle
        self._stream = reader.stream
        self._described: dict[tuple[str, str], TableDecoder] = {}
        # Of the decoders that serve captured tables: whose rows they read, and how many columns a whole row has.
        self._known: dict[TableDecoder, tuple[TableId, int]] = {}
        self._kept: dict[bytes, tuple[TableId, str]] = {}
        self._maps: dict[bytes, bytes] = {}
        self._touched = False

    @property
    def gtid_set(self) -> str:
        """All transactions that ended; empty without GTIDs."""
        known = self._stream.progress.gtids
        return str(known) if known is not None else ""

    @property
    def place(self) -> tuple[str, int]:
        """Where the next event begins."""
        return self._stream.progress.file, self._stream.progress.position

    @property
    def state(self) -> dict[str, Any]:
        """See `seams.Stream`."""
        return {}

    def reached(self, position: Position) -> bool:
        """Whether all up to a position has been read."""
        progress = self._stream.progress
        known = progress.gtids
        if position.gtid_set and known is not None:
            return covers(known, type(known).parse(position.gtid_set))
        return (progress.file, progress.position) >= (position.file, position.pos)

    def __iter__(self) -> Iterator[Fact]:
        progress, idle = self._stream.progress, self._idle
        for raw in self._reader.raw_events():
            code = raw[0]
            if code in ROWS_EVENTS:
                rows = self._rows(raw)
                if rows is not None:
                    self._touched = True
                    yield rows
                continue
            if code == 19:  # TABLE_MAP
                found = self._map(raw)
                if found is not None:
                    yield found
                continue
            if code == 16:  # XID
                yield TransactionEnded(progress.file, progress.position)
                yield from self._transactions()
            elif code in GTID_EVENTS:
                self._touched = False
                yield self._began(raw)
                continue
            elif code in _QUERIES:
                if progress.framing:
                    continue
                yield from self._statement(raw)
            elif code == 38:  # XA_PREPARE
                if self._touched and not raw.data[HEADER_SIZE]:
                    self._fatal(raw, "an XA transaction changed captured tables", "use plain transactions for them")
                yield TransactionEnded(progress.file, progress.position)
            else:
                yield from self._other(raw)
            if not progress.in_transaction and idle():
                yield CAUGHT_UP

    def _began(self, raw: RawEvent) -> TransactionBegan:
        return TransactionBegan(
            self._stream.progress.gtid, commit_micros(raw), U32(raw.data, 5)[0], raw.file, raw.offset
        )

    def _transactions(self) -> Iterator[Fact]:
        """The transactions of one event of rows that have arrived: what they tell one by one, and much sooner."""
        buffer = self._reader.whole_buffer()
        if buffer is None:
            return
        progress, known, file, new = self._stream.progress, self._known, buffer.file, tuple.__new__
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

    def _statement(self, raw: RawEvent) -> Iterator[Fact]:
        """A statement is a transaction of its own, unless it stands inside one."""
        progress = self._stream.progress
        query = parse_event(raw)
        assert isinstance(query, Query), "a query event parses to Query"
        sql = query.text.strip()
        first = sql[:12].upper()
        if first.startswith("ROLLBACK") and not first.startswith("ROLLBACK TO") and self._touched:
            self._fatal(raw, "changes of captured tables were logged and rolled back", "do not mix them with MyISAM")
        if first.startswith(("COMMIT", "ROLLBACK", "SAVEPOINT", "RELEASE", "XA ")) or not self._tables.concerns(
            query.database, sql
        ):
            pass
        elif changes_rows(sql):
            yield self._untold(query.database, sql)
        else:
            yield StatementLogged(query.database, sql, query.thread_id, _sql_mode(query.status))
            if fills(sql):
                yield self._untold(query.database, sql)
        if not progress.in_transaction:
            yield TransactionEnded(progress.file, progress.position)

    def _untold(self, database: str, sql: str) -> RowsUntold:
        names = written(database, sql)
        return RowsUntold(None if names is None else tuple(sorted(names)), " ".join(sql[:2000].split())[:200])

    def _map(self, raw: RawEvent) -> Fact | None:
        """Take note of a TABLE_MAP; a fact where it says, for the first time, what a captured table looks like."""
        data, size = raw.data, self._stream.id_size
        key = data[HEADER_SIZE : HEADER_SIZE + size]
        table = _table_named(data, HEADER_SIZE + size + 2)
        if not self._tables.captured(*table):
            self._kept.pop(key, None)
            self._stream.map_table(raw)
            return None
        self._maps[key] = data
        try:
            decoder = self._stream.map_table(raw)
        except BinlogError as error:
            self._kept[key] = (self._id(table), error.reason)
            return None
        before = self._described.get(table)
        if before is decoder:
            self._kept.pop(key, None)
            return None
        columns = [column for column in decoder.table.columns if not is_hidden(column.name)]
        if not all(column.named for column in columns):
            decoder.whole = False
            self._kept[key] = (self._id(table), "the log does not name its columns, and no statement told them")
            return None
        self._kept.pop(key, None)
        if before is not None:
            # Each change from one to the other is told.
            before.whole = False
            self._known.pop(before, None)
        decoder.whole = True
        self._described[table], self._known[decoder] = decoder, (self._id(table), len(columns))
        if decoder.table.described:
            return TableDescribed(self._id(table), *described(decoder.table))
        return None

    def _id(self, table: tuple[str, str]) -> TableId:
        return TableId(source=self._tables.source, database=table[0], table=table[1])

    def _rows(self, raw: RawEvent) -> Fact | None:
        data, code = raw.data, raw.code
        key = data[HEADER_SIZE : HEADER_SIZE + self._stream.id_size]
        if self._kept and key in self._kept:
            return self._keep(raw, key, *self._kept[key])
        decoder = self._stream.decoder_of(raw)
        if not decoder.wanted:
            return None
        table, width = self._known[decoder]
        plain = True
        try:
            rows = decoder.decode(code, data, self._stream.id_size)
        except Unrepresentable:
            rows, plain = judged_rows(decoder, data, self._stream.id_size), False
        except MissingTableMap:
            raise
        except BinlogError as error:
            return self._keep(raw, key, table, error.reason)
        operation = OPERATION[code]
        images = rows[0] if operation == "update" else rows[:1]
        if code == T.PARTIAL_UPDATE_ROWS or any(len(_told(image)) < width for image in images):
            return RowsPartial(table, operation, rows, raw.file, raw.offset)
        return RowsLogged(table, operation, rows, plain, raw.file, raw.offset)

    def _keep(self, raw: RawEvent, key: bytes, table: TableId, why: str) -> RowsKept:
        return RowsKept(table, why, self._stream.server.server, self._maps[key], raw.data, raw.file, raw.offset)

    def _other(self, raw: RawEvent) -> Iterator[Fact]:
        if raw.code == T.INCIDENT:
            self._fatal(raw, "the server reports an incident: its log has a gap", "take a new snapshot")
        if raw.code == T.EXECUTE_LOAD_QUERY:
            database, sql = loaded(raw.data[HEADER_SIZE:])
            if self._tables.concerns(database, sql):
                yield self._untold(database, sql)
        elif raw.code not in _FILE_PARTS:
            self._stream.check_known(raw)

    def _fatal(self, raw: RawEvent, what: str, hint: str) -> NoReturn:
        gtid = self._stream.progress.gtid
        raise Fatal(f"source {self._tables.source}: {what}, at {raw.where}" + (f" ({gtid})" if gtid else ""), hint)


def judged_rows(decoder: TableDecoder, event: bytes, id_size: int) -> list[Any]:
    """The rows of an event of which one value has no canonical form."""
    shown = TableDecoder(decoder.table, _SHOWN).decode(event[4], event, id_size)
    columns = decoder.table.columns
    if OPERATION[event[4]] == "update":
        return [(judged(columns, before), judged(columns, after)) for before, after in shown]
    return [judged(columns, image) for image in shown]


def _told(image: Image) -> dict[str, Any]:
    return image.values if isinstance(image, RefusedImage) else image


def _table_named(data: bytes, at: int) -> tuple[str, str]:
    """Database and table of a TABLE_MAP, whose names begin at `at`."""
    size = data[at]
    database = data[at + 1 : at + 1 + size].decode(errors="replace")
    at += size + 2
    return database, data[at + 1 : at + 1 + data[at]].decode(errors="replace")


def _sql_mode(status: bytes) -> int:
    """The sql_mode among a query's status variables, which begin with flags (0) and then it (1); 0 when absent."""
    at = 5 if status[:1] == b"\0" else 0
    return int(U64(status, at + 1)[0]) if status[at : at + 1] == b"\1" and len(status) >= at + 9 else 0
