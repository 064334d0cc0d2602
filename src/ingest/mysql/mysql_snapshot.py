"""Read chunks of tables during capture, with one connection and one thread per range, and normally without locks.

A chunk must contain every change that the stream had read at its request: the server, which may be a replica, is waited
for. And it must contain nothing later than its position `high`. GTID sets show both; MariaDB also reports the position
of a consistent snapshot. A server without GTIDs needs a short FLUSH TABLES WITH READ LOCK, which must be enabled. Its
file and position alone may include transactions that a SELECT does not see yet, so that an update would be lost.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pymysql.cursors import SSCursor

from cdc.model.errors import Retriable, Skippable
from cdc.model.event import Position
from cdc.model.schema import TableSchema
from cdc.topology.topology import Source
from ingest.binlog.format.gtid import MariaGtidSet
from ingest.capture.permitted import permitted_request
from ingest.capture.proc_chunks import ChunkThreads
from ingest.events.log_events import Image
from ingest.events.values import image_of, readers_of
from ingest.mysql import mysql_schema
from ingest.mysql.mysql_connection import Connection, connected, named, query, reading, translated
from ingest.mysql.mysql_ranges import cuts_of
from ingest.mysql.mysql_replica import PrimaryCheck, on_replica, primary_check, why_late
from ingest.mysql.mysql_rows import read_rows
from ingest.records import chunks
from ingest.records.chunk_requests import LEAST_CHUNKS, PASS, Chunk, ChunkRequest, Key

CHUNK = 4096  # rows per chunk: as many are in memory per table
KEYS = 500  # maximum rows that one SELECT reads by their keys
_TIMEOUT = 60.0  # seconds to wait for a replica to execute what the stream has read


class MySqlChunks(ChunkThreads):
    """Chunk reader of a MySQL source; implements `chunk_requests.ChunkReader`.

    `lock` allows FLUSH TABLES WITH READ LOCK. `close` ends its threads.
    """

    def __init__(self, source: Source, *, rows: int = CHUNK, lock: bool = False) -> None:
        super().__init__(
            lambda: _reading(source, rows, lock),
            apart=source.snapshot is not None,
            reusable=lambda reading: not reading.began,
        )
        self._source = source

    def request(self, request: ChunkRequest) -> None:
        """Implements `ChunkReader.request`. Raises Skippable if the host's policy forbids reading rows."""
        super().request(permitted_request(self._source, request))


@contextmanager
def _reading(source: Source, rows: int, lock: bool) -> Iterator[_Reading]:
    at = on_replica(source)
    with connected(at, read_timeout=3600.0) as connection, primary_check(source, connection) as primary:
        reading = _Reading(connection, at, rows, lock, primary)
        try:
            yield reading
        finally:
            if reading.passes:
                connection._force_close()  # type: ignore[attr-defined]  # a regular close would read the remaining rows


class _Reading:
    """Reads the chunks of one range of a table, one after the other."""

    def __init__(
        self, connection: Connection, source: Source, rows: int, lock: bool, primary: PrimaryCheck | None
    ) -> None:
        self._connection, self._source, self._rows, self._lock = connection, source, rows, lock
        self._primary, self._least = primary, LEAST_CHUNKS * rows
        self._pass: Iterator[list[Image]] | None = None
        self._high: Position | None = None
        self.began = False  # a transaction has begun that shows the state of that moment
        self._set_up(connection)

    @property
    def passes(self) -> bool:
        """Return whether one SELECT is reading the whole table."""
        return self._pass is not None

    def _set_up(self, connection: Connection) -> None:
        with translated(self._source, "set up a snapshot"):
            query(connection, "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            query(connection, "SET SESSION net_write_timeout = 3600, wait_timeout = 86400")
            version = str(query(connection, "SELECT VERSION()")[0][0])
            self._maria = "mariadb" in version.lower()
            self._gtids = not self._maria and str(query(connection, "SELECT @@GLOBAL.gtid_mode")[0][0]) == "ON"

    def read(self, request: ChunkRequest) -> Chunk:
        """Read the requested chunk. Implements `TableReading`."""
        connection = self._connection
        if request.keys:
            return self._keyed(connection, request)
        if not (self._maria or self._gtids) or not (request.unique and chunks.walkable(request.schema)):
            return self._page(connection, request)
        schema, last, width = request.schema, request.last, len(request.schema.columns)
        self._wait(connection, request.position)
        high: Position | None = None
        with reading(self._source, schema.table_id):
            if last is None:
                found = query(connection, chunks.select_last(schema, request.where))
                last = [chunks.stored(value) for value in found[0]] if found else None
            if self._maria:
                high = self._begin(connection)
            result = (
                read_rows(connection, chunks.select_rows(schema, request.after, last, request.where, self._rows))
                if last else None
            )  # fmt: skip
            if self._maria:
                query(connection, "COMMIT")
            after: Key | None = None
            if result is not None and len(result.packets) == self._rows:
                after = [chunks.stored(value) for value in result.values(result.packets[-1])[width:]]
            cuts: list[Key] = []
            if request.divide > 1 and after and last:
                cuts = cuts_of(connection, schema, after, last, request.divide, self._least)
        if high is None:
            high = self._executed(connection)
        images = [] if result is None else result.images(schema)
        total = self._rows_of(connection, request) if request.after is None else None
        return Chunk(request=request, images=images, after=after, last=last, high=high, total=total, cuts=tuple(cuts))

    def _keyed(self, connection: Connection, request: ChunkRequest) -> Chunk:
        """Read the rows with some keys, a few hundred at a time, and the positions before and after."""
        images: list[Image] = []
        self._wait(connection, request.position)
        exact = self._maria or not self._gtids
        high = self._pass_begins(connection) if exact else None
        with reading(self._source, request.schema.table_id):
            for at in range(0, len(request.keys), KEYS):
                sql = chunks.select_keys(request.schema, request.keys[at : at + KEYS])
                images += _images(request.schema, query(connection, sql))
        if high is None:
            high = self._executed(connection)
        return Chunk(request=request, images=images, after=None, last=None, high=high)

    def _page(self, connection: Connection, request: ChunkRequest) -> Chunk:
        """Return the next chunk of a table that one SELECT reads, in any order.

        All chunks show the state at the beginning of that SELECT."""
        total = None
        if self._pass is None:
            total = self._rows_of(connection, request)
            self._wait(connection, request.position)
            self._high = self._pass_begins(connection)
            self._pass = self._pages(connection, request)
        assert self._high is not None, "it was noted when the pass began"
        page = next(self._pass, None)
        after: list[Any] | None = PASS if page is not None else None
        return Chunk(request=request, images=page or [], after=after, last=None, high=self._high, total=total)

    def _rows_of(self, connection: Connection, request: ChunkRequest) -> int | None:
        """Return the server's estimate of the number of rows; None if a condition excludes some."""
        table = request.schema.table_id
        if request.where:
            return None
        with translated(self._source, f"estimate the rows of {table}"):
            found = query(
                connection,
                "SELECT TABLE_ROWS FROM information_schema.TABLES WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s",
                table.database, table.table,
            )  # fmt: skip
        return int(found[0][0]) if found and found[0][0] is not None else None

    def _pages(self, connection: Connection, request: ChunkRequest) -> Iterator[list[Image]]:
        # If reading fails, the cursor is not closed, because that would read the rest of the table. The connection
        # closes it.
        cursor = connection.cursor(SSCursor)
        with reading(self._source, request.schema.table_id):
            cursor.execute(chunks.select_all(request.schema, request.where))
        while True:
            with reading(self._source, request.schema.table_id):
                rows = cursor.fetchmany(self._rows)
            if not rows:
                return
            yield list(_images(request.schema, rows))

    def _pass_begins(self, connection: Connection) -> Position:
        self.began = True
        if self._maria or self._gtids:
            with translated(self._source, "begin a consistent snapshot"):
                position = self._begin(connection)
                return position if self._maria else self._executed(connection)
        if not self._lock:
            raise Skippable(
                f"source {self._source.name}: without GTIDs, assigning rows to positions requires a lock",
                "SET PERSIST gtid_mode = ON, or allow a brief FLUSH TABLES WITH READ LOCK by "
                "snapshot_locking_mode: minimal",
            )
        with translated(self._source, "begin a consistent snapshot under a read lock"):
            query(connection, "FLUSH TABLES WITH READ LOCK")
            try:
                query(connection, "START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY")
                return mysql_schema.head(connection, self._source)
            finally:
                query(connection, "UNLOCK TABLES")

    def _begin(self, connection: Connection) -> Position:
        """Begin a consistent snapshot, and return its position in the log: exact for MariaDB, otherwise the log's
        end."""
        query(connection, "START TRANSACTION WITH CONSISTENT SNAPSHOT")
        status = dict(query(connection, "SHOW STATUS LIKE 'binlog_snapshot_%'")) if self._maria else {}
        if not status:
            return Position(file="", pos=0, gtid_set="", sequence=0)
        file, pos = status["Binlog_snapshot_file"], int(status["Binlog_snapshot_position"])
        gtids = str(query(connection, "SELECT BINLOG_GTID_POS(%s, %s)", file, pos)[0][0] or "")
        return Position(file=file, pos=pos, gtid_set=gtids, sequence=0)

    def _executed(self, connection: Connection) -> Position:
        """Return what the server has executed. Call it outside `reading`: its errors do not concern a single table."""
        with translated(self._source, "read the server's transactions"):
            executed = str(query(connection, "SELECT @@GLOBAL.gtid_executed")[0][0]).replace("\n", "")
        if self._primary is not None:
            self._primary.check(executed)
        return Position(file="", pos=0, gtid_set=executed, sequence=0)

    def _wait(self, connection: Connection, position: Position) -> None:
        """Wait until the server has executed everything before a position. Raises Retriable after too long."""
        deadline = time.monotonic() + _TIMEOUT
        with translated(self._source, "compare the server with the stream"):
            while not self._shows(connection, position):
                if time.monotonic() > deadline:
                    name, replica = self._source.name, self._source.snapshot is not None
                    who = named(self._source) if replica else "the server"
                    why = f" ({why_late(connection, self._source)})" if replica else ""
                    raise Retriable(f"source {name}: {who} still lacks transactions of the log that was read{why}")
                time.sleep(0.005)

    def _shows(self, connection: Connection, position: Position) -> bool:
        if self._gtids and position.gtid_set:
            return (
                str(query(connection, "SELECT GTID_SUBSET(%s, @@GLOBAL.gtid_executed)", position.gtid_set)[0][0]) == "1"
            )
        if self._maria and re.fullmatch(r"[\d,-]+", position.gtid_set):
            current = MariaGtidSet.parse(str(query(connection, "SELECT @@GLOBAL.gtid_binlog_pos")[0][0] or ""))
            wanted = MariaGtidSet.parse(position.gtid_set)
            return all(current.domains.get(d, (0, -1))[1] >= number for d, (_, number) in wanted.domains.items())
        return True


def _images(schema: TableSchema, rows: Any) -> Iterator[Image]:
    readers = readers_of(schema)
    for row in rows:
        yield image_of(readers, row)
