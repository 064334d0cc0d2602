"""A MySQL server's binary log as facts: mysql-replication reads the packets, `rows` the row images.

Only events between a GTID and its commit are told; whatever could hide a change of a captured table (a statement
logged as text, a compressed or XA transaction, an event that cannot be read) is Fatal with its file and position.
Reading begins at a transaction's first event always, since positions are GTID sets: so a TABLE_MAP is never missed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NoReturn

from pymysqlreplication import BinLogStreamReader, event, row_event
from pymysqlreplication.exceptions import BinLogNotEnabled

from cdc.errors import Fatal, Retriable, TailorbirdError
from cdc.event import Position
from cdc.schema import TableId, TableSchema
from cdc.topology import Source
from ingest.agent.columns import Charset, schema_of
from ingest.agent.facts import CaughtUp, Change, Fact, RowsLogged, SchemaChanged, TransactionBegan, TransactionEnded
from ingest.agent.mysql_connection import Connection, settings, translated
from ingest.agent.mysql_tablemap import logged_table
from ingest.agent.rows import RowDecoder
from ingest.agent.statements import danger

HEARTBEAT = 0.5  # seconds between signs of life of an idle server: how often CaughtUp is repeated
_READ_TIMEOUT = 15.0
_IGNORABLE = 0x80  # flag of events that a reader may skip without losing anything
# INTVAR, RAND, USER_VAR: context of statements; FORMAT_DESCRIPTION, PREVIOUS_GTIDS, STOP, ROWS_QUERY: bookkeeping
_CONTEXT = {3, 5, 13, 14, 15, 29, 35}
_NAMES = {26: "an incident", 34: "an anonymous transaction", 40: "a compressed transaction", 42: "a tagged GTID"}
_REMEDIES = {34: "SET PERSIST gtid_mode = ON", 40: "SET PERSIST binlog_transaction_compression = OFF"}


class Binlog:
    """One connection to a server's log, read from a position on; `facts` may be iterated once."""

    def __init__(
        self,
        source: Source,
        position: Position,
        schemas: Mapping[TableId, TableSchema],
        charsets: Mapping[int, Charset],
    ) -> None:
        self._source, self._charsets = source, charsets
        self._schemas = dict(schemas)
        self._captured = {(t.database, t.table) for t in source.tables}
        self._decoders: dict[int, tuple[TableSchema, RowDecoder]] = {}
        self._connections: list[Connection] = []
        self._gtid = ""
        self._touched = self._begun = False
        self._new_schemas: list[TableSchema] = []
        self._reader = BinLogStreamReader(
            connection_settings={**settings(source), "read_timeout": _READ_TIMEOUT},
            server_id=source.server_id,
            blocking=True,
            auto_position=position.gtid_set,
            filter_non_implemented_events=False,
            only_schemas=sorted({database for database, _ in self._captured}),
            only_tables=sorted({table for _, table in self._captured}),
            slave_heartbeat=HEARTBEAT,
            enable_logging=False,
            pymysql_wrapper=self._connect,
        )

    def close(self) -> None:
        """Close the connections; safe to call at any time."""
        for connection in self._connections:
            if connection.open:
                connection._force_close()  # type: ignore[attr-defined]  # a polite close would wait for the log's end

    def facts(self) -> Iterator[Fact]:
        """Facts in commit order; Retriable when the connection is lost, Fatal as said above."""
        while True:
            if self._gtid == "" and self._connections and not self._connections[0].waiting():
                yield CaughtUp()
            yield from self._facts_of(self._next())

    def _connect(self, **arguments: Any) -> Connection:
        if "db" in arguments:  # the library's word for it, which PyMySQL has given up
            arguments["database"] = arguments.pop("db")
        connection = Connection(**arguments)
        self._connections.append(connection)
        return connection

    def _next(self) -> Any:
        try:
            with translated(self._source, "read the log"):
                logged = self._reader.fetchone()
        except (TailorbirdError, KeyboardInterrupt):
            raise
        except BinLogNotEnabled as error:
            self._fatal("the server writes no binary log", "set log_bin in my.cnf and restart it", error)
        except Exception as error:  # noqa: BLE001  # whatever the library trips over, no event may be skipped
            self._fatal(
                f"an event cannot be read: {type(error).__name__}: {error}", "report it with the log file", error
            )
        if logged is None:
            raise Retriable(f"source {self._source.name}: the server ended the log stream")
        return logged

    def _facts_of(self, logged: Any) -> Iterator[Fact]:
        match logged:
            case row_event.PartialUpdateRowsEvent():
                self._fatal("a partial JSON update", "SET PERSIST binlog_row_value_options = ''")
            case row_event.RowsEvent():
                rows = self._rows(logged)
                if rows is not None:
                    self._touched = True
                    yield from (SchemaChanged(schema=schema) for schema in self._new_schemas)
                    self._new_schemas.clear()
                    yield rows
            case row_event.TableMapEvent():
                self._table_map(logged)
            case event.GtidEvent():
                yield self._began(logged)
            case event.XidEvent():
                yield self._ended()
            case event.QueryEvent():
                yield from self._statement(logged)
            case event.XAPrepareEvent():
                if self._touched and not logged.one_phase:  # prepared: its rows may still be rolled back
                    self._fatal("an XA transaction changed captured tables", "use plain transactions for them")
                yield self._ended()
            case event.NotImplementedEvent():
                self._unknown(logged)
            case event.HeartbeatLogEvent() | event.RotateEvent() | event.StopEvent():
                pass
            case _:
                self._unknown(logged)

    def _began(self, logged: Any) -> TransactionBegan:
        if self._gtid:
            self._fatal(f"transaction {logged.gtid} begins inside another", "report it with the log file")
        self._gtid, self._touched, self._begun = logged.gtid, False, False
        commit_us = _commit_time(_tail(logged)) or logged.timestamp * 1_000_000
        return TransactionBegan(gtid=logged.gtid, commit_us=commit_us, server_id=logged.packet.server_id)

    def _ended(self) -> TransactionEnded:
        self._gtid = ""
        return TransactionEnded(file=self._reader.log_file or "", pos=self._reader.log_pos or 0)

    def _statement(self, logged: Any) -> Iterator[Fact]:
        """A statement is a transaction of its own, unless BEGIN or XA START stands before it."""
        sql = logged.query.strip()
        words = sql[:100].upper().rstrip(";").split()
        match words[:2]:
            case ["BEGIN", *_] | ["XA", "START"]:
                self._begun = True
            case ["SAVEPOINT", *_] | ["XA", "END"]:
                pass
            case ["COMMIT", *_] | ["XA", "COMMIT" | "ROLLBACK"]:
                yield self._ended()
            case ["ROLLBACK", *rest]:
                if self._touched:
                    self._fatal("changes of captured tables were logged and rolled back", "do not mix them with MyISAM")
                if rest != ["TO"]:
                    yield self._ended()
            case _:
                self._refuse_danger(sql, logged.schema)
                if not self._begun:
                    yield self._ended()

    def _refuse_danger(self, sql: str, schema: bytes | str) -> None:
        database = schema.decode() if isinstance(schema, bytes) else schema
        why = danger(sql, database, self._captured)
        if why:
            self._fatal(
                f"{why}: {' '.join(sql.split())[:200]}",
                "start over under a new topology name to take a new snapshot of the tables as they are now",
            )

    def _table_map(self, logged: Any) -> None:
        if (logged.schema, logged.table) not in self._captured:
            return
        known = self._schemas.get(TableId(source=self._source.name, database=logged.schema, table=logged.table))
        try:
            table = logged_table(logged, known, self._charsets)
            schema = schema_of(table, self._source.name, known, self._charsets)
        except Fatal as error:
            self._fatal(error.message, error.hint, error)
        if schema is not known:
            self._schemas[schema.table_id] = schema
            self._new_schemas.append(schema)
        cached = self._decoders.get(logged.table_id)
        if cached is None or cached[0] is not schema:
            self._decoders[logged.table_id] = (schema, RowDecoder(table, self._charsets))

    def _rows(self, logged: Any) -> RowsLogged | None:
        if (logged.schema, logged.table) not in self._captured:
            return None
        if self._gtid == "":
            self._fatal("rows outside a transaction with a GTID", "SET PERSIST gtid_mode = ON")
        schema, decoder = self._decoders[logged.table_id]
        body = _tail(logged)
        present = logged.columns_present_bitmap
        changes: tuple[Change, ...]
        try:
            if isinstance(logged, row_event.UpdateRowsEvent):
                if logged.columns_present_bitmap2 != present:
                    self._fatal("an update was logged with partial images", "SET PERSIST binlog_row_image = FULL")
                images = list(decoder.images(body, present))
                changes = tuple(zip(images[::2], images[1::2], strict=True))
            elif isinstance(logged, row_event.WriteRowsEvent):
                changes = tuple((None, image) for image in decoder.images(body, present))
            else:
                changes = tuple((image, None) for image in decoder.images(body, present))
        except Fatal as error:
            self._fatal(error.message, error.hint, error)
        packet = logged.packet
        return RowsLogged(
            schema=schema,
            changes=changes,
            file=self._reader.log_file or "",
            pos=packet.log_pos - packet.event_size,
        )

    def _unknown(self, logged: Any) -> None:
        code = logged.event_type
        if code in _CONTEXT or logged.packet.flags & _IGNORABLE:
            return
        what = _NAMES.get(code, f"an event of type {code}, which is not known")
        self._fatal(what, _REMEDIES.get(code, "report it with the log file"))

    def _fatal(self, what: str, hint: str, cause: BaseException | None = None) -> NoReturn:
        where = f"{self._reader.log_file}:{self._reader.log_pos}" + (f" ({self._gtid})" if self._gtid else "")
        raise Fatal(f"source {self._source.name}: {what}, at {where}", hint) from cause


def _tail(logged: Any) -> bytes:
    """What the library has not read of an event, without its checksum."""
    data: bytes = logged.packet.read(logged.event_size - logged.packet.read_bytes)
    return data


def _commit_time(rest: bytes) -> int | None:
    """Commit time in microseconds from the end of a GTID event; None before MySQL 8.0.1, which had none."""
    if len(rest) < 7:
        return None
    return int.from_bytes(rest[:7], "little") & (1 << 55) - 1
