"""Decide which tables can be decoded from an older position of a binary log on, by one pass over the log.

A table is decodable if the server's columns of today were valid there (no statement since then names the table), if the
log names the columns itself (`binlog_row_metadata=FULL`), or if the log contains the table's creation. Any other table
was altered since then, and nothing states its earlier columns.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from cdc.model.errors import UsageError
from cdc.model.event import Position
from cdc.model.identifiers import fold_identifier
from ingest.binlog import BinlogReader
from ingest.binlog.format.codes import EventType
from ingest.binlog.format.errors import BinlogError
from ingest.binlog.format.gtid import covers
from ingest.binlog.reading.effects import effects
from ingest.binlog.reading.events import Query, RawEvent
from ingest.binlog.reading.parse import commit_micros, parse_event
from ingest.binlog.reading.position import GTID_EVENTS, PositionTracker, identity_of
from ingest.binlog.reading.stream import EventStream
from ingest.ddl.catalog import Catalog, TableName
from ingest.ddl.dialect import Dialect
from ingest.events.log_place import LogPlace, time_text
from ingest.events.tables import Tables

_QUERIES = frozenset({int(EventType.QUERY), int(EventType.MARIA_QUERY_COMPRESSED)})
_DEFINES = re.compile(r"\b(CREATE|ALTER|DROP|RENAME)\b", re.IGNORECASE)
_DATABASES = re.compile(r"\b(ALTER|DROP)\b.*\b(DATABASE|SCHEMA)\b", re.IGNORECASE | re.DOTALL)
# A creation whose columns do not follow from its own text, or which may have had no effect.
_UNSURE = re.compile(r"\b(LIKE|SELECT|EXISTS)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogStart:
    """A position at which a capture begins, and the tables' definitions there.

    `catalog` lacks the tables that the log itself defines. `later` are the captured tables whose rows cannot be decoded
    from the position on, with the reason.
    """

    position: Position
    catalog: Catalog
    later: Mapping[TableName, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Statement:
    """A statement that defines something: its number in the log, the place after it, its folded text, the tables it
    creates."""

    number: int
    place: str
    text: str
    created: frozenset[TableName]

    def names(self, table: TableName) -> bool:
        """Return whether the statement may concern a table. It may return True for others."""
        name = fold_identifier(table[1])
        return _DATABASES.search(self.text) is not None or name in self.text or name.replace("`", "``") in self.text


class LogScan:
    """Collects what the log after a position says about the columns of captured tables.

    Pass every raw event to `see`."""

    def __init__(self, stream: EventStream, tables: Tables, dialect: Dialect) -> None:
        self._stream, self._tables, self._dialect = stream, tables, dialect
        self._statements: list[_Statement] = []
        # first TABLE_MAP of each captured table: (its number, whether it names the columns)
        self._maps: dict[TableName, tuple[int, bool]] = {}
        self._number = 0

    def see(self, raw: RawEvent) -> None:
        """Note an event of the log."""
        self._number += 1
        if raw.code == EventType.TABLE_MAP:
            self._map(raw)
        elif raw.code in _QUERIES:
            query = parse_event(raw)
            assert isinstance(query, Query), "a query event parses to Query"
            sql = query.text.strip()
            if _DEFINES.search(sql) and self._tables.concerns(query.database, sql):
                self._statements.append(self._defined(raw, query.database, sql))

    def _map(self, raw: RawEvent) -> None:
        try:
            found = self._stream.map_table(raw).table
        except BinlogError:
            return  # capture itself reports it when it gets there
        name = self._dialect.table_name(found.database, found.table)
        if name not in self._maps and self._tables.captured(*name):
            self._maps[name] = self._number, all(column.named for column in found.columns)

    def _defined(self, raw: RawEvent, database: str, sql: str) -> _Statement:
        made = {
            self._dialect.table_name(effect.database, effect.table)
            for effect in effects(database, sql)
            if effect.kind == "create" and not _UNSURE.search(sql)
        }
        return _Statement(
            self._number, f"{raw.file}:{raw.next_position or raw.offset}", fold_identifier(sql), frozenset(made)
        )

    def start(self, position: Position, shown: Catalog) -> LogStart:
        """Return the begin of a capture at a position; `shown` are the server's tables at the end of the log."""
        catalog, later = shown, dict[TableName, str]()
        for name in sorted({*shown.tables, *self._maps}):
            about = [statement for statement in self._statements if statement.names(name)]
            if not about and name in shown.tables:
                continue
            catalog = catalog.without_table(name)
            if self._tables.captured(*name) and not self._states_columns(name, about):
                place = about[-1].place if about else "the end of the log"
                later[name] = f"its columns before {place} are not known: the log does not name them"
        return LogStart(position=position, catalog=replace(catalog, unknown={}), later=later)

    def _states_columns(self, name: TableName, about: list[_Statement]) -> bool:
        """Return whether the log defines a table before its first row."""
        first, named = self._maps.get(name, (self._number + 1, False))
        if named:
            return True
        # ALTER DATABASE changes the character set of tables that were created before it
        altered = any(_DATABASES.search(statement.text) for statement in self._statements)
        return not altered and any(one.number < first and name in one.created for one in about)


def start_of(
    reader: BinlogReader,
    place: LogPlace,
    file: str,
    dialect: Dialect,
    shown: Catalog,
    head: Position,
    tables: Tables,
    *,
    now_micros: int,
    stopped: Callable[[], bool],
) -> LogStart | None:
    """Return the start of a capture at a place, which `file` contains; None if `stopped` returns True before.

    `reader` reads the log from the beginning of that file. `shown` are the server's tables at the log's end `head`.
    `now_micros` is the current time (µs since 1970). Raises UsageError for a place inside a transaction, or one that
    the log does not contain.
    """
    scan, progress = LogScan(reader.stream, tables, dialect), reader.stream.progress
    begin: Position | None = None
    ended = 4  # end of the last transaction in the place's file
    times: list[int] = []  # of the first and the last transaction
    for raw in reader.raw_events():
        if stopped():
            return None
        if raw.code in GTID_EVENTS:
            times[1:] = [commit_micros(raw)]  # becomes the first one, or replaces the last one
        if begin is None and raw.code in GTID_EVENTS and _reached(place, raw, file):
            if ended > place.pos > 0:
                what = f"{place.file}:{place.pos} is inside a transaction of the log"
                raise UsageError(what, f"choose {raw.file}:{raw.offset}, where the next transaction begins")
            gtids = place.gtids if place.gtids is not None else progress.gtids
            begin = Position(
                file=raw.file, pos=raw.offset, gtid_set="" if gtids is None else str(gtids), sequence=0
            )  # fmt: skip
        if begin is not None:
            scan.see(raw)
        if not progress.in_transaction:
            if progress.file == place.file:
                ended = progress.position
            if (progress.file, progress.position) >= (head.file, head.pos):
                break
    if begin is None:
        _check_end(place, file, ended, head, progress, times, now_micros)
    return scan.start(begin or head, shown)


def _check_end(
    place: LogPlace, file: str, ended: int, head: Position, read: PositionTracker, times: list[int], now_micros: int
) -> None:
    """Return if the log's end `head` is the place, because no transaction follows it. Raises UsageError otherwise.

    `ended` is the end of the last transaction in the place's file. `read` is what was read of the log, from the
    beginning of `file` on. `times` are those of the first and the last transaction (µs since 1970).
    """
    held = f"transactions from {time_text(times[0])} to {time_text(times[-1])}" if times else "no transaction"
    held = f"from {file} on, the log has {held}"
    if read.transactions and not times:
        what = f"cannot find {place.text}: the transactions from {file} on have no GTID events"
        raise UsageError(what, "start without --from, at the log's end")
    if place.micros is not None and place.micros > now_micros:
        raise UsageError(f"{place.text} is in the future; {held}", "choose an earlier time, or start without --from")
    logged = read.gtids
    if place.gtids is not None and (logged is None or not covers(logged, place.gtids)):
        what = f"the log does not contain all of {place.gtids}; {held}"
        raise UsageError(what, f"choose a part of {logged}" if logged else "choose a position or a time")
    if place.file and ((place.file, place.pos) > (head.file, head.pos) or ended > place.pos):
        raise UsageError(
            f"no transaction of the log begins at {place.file}:{place.pos} or after it; {held}",
            f"choose a position up to {head.file}:{head.pos}",
        )


def _reached(place: LogPlace, raw: RawEvent, file: str) -> bool:
    """Return whether a transaction that begins here is the first one to capture."""
    if place.gtids is not None:
        identity = identity_of(raw)
        return identity is not None and not place.gtids.holds(identity)
    if place.micros is not None:
        return commit_micros(raw) >= place.micros
    return raw.file != file or raw.offset >= place.pos
