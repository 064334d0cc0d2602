"""Read chunks of tables during capture, without locks, with one connection and one thread per range that is being read.

A chunk must contain every change that was streamed before its request, and nothing later than its position `high`. The
first is not trivial: a commit is in the log, and may be streamed, before other sessions see it, which takes seconds if
it waits for a standby. So the snapshot is repeated until it shows all transactions that were streamed recently. `high`
is the end of the log after the rows were read: everything that they show was logged before.

The first chunk of a table waits for all transactions that ran at its request, because no stream contains what they
changed before the table was published.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from cdc.model.errors import Retriable
from cdc.model.event import Position
from cdc.model.schema import TableSchema
from cdc.topology.topology import Source
from ingest.capture.permitted import permitted_request
from ingest.capture.proc_chunks import ChunkThreads
from ingest.events.log_events import Image
from ingest.postgres import selects
from ingest.postgres.column_types import PgTypes
from ingest.postgres.messages import lsn_of
from ingest.postgres.pg_connection import PgConnection, connected, translated
from ingest.postgres.pg_ranges import cuts_of
from ingest.postgres.pg_schema import shown, types_of
from ingest.postgres.pg_slot import TIMEOUT, held_up
from ingest.postgres.relations import TableShown, image_of, json_rows
from ingest.postgres.visible import VisibleTransactions, visible_of
from ingest.records.chunk_requests import LEAST_CHUNKS, PASS, Chunk, ChunkRequest, Key
from ingest.records.row_json import EncodedRow

CHUNK = 4096  # rows per chunk: as many are in memory per table
KEYS = 500  # maximum rows that one SELECT reads by their keys
_WAITS = "SELECT backend_xid FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND backend_xid IS NOT NULL"
_BEGIN = "BEGIN TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"
_NUDGE = "SELECT pg_logical_emit_message(true, 'tailorbird', '')"


@dataclass(slots=True)
class StreamedTransactions:
    """The transactions that were streamed recently, by their 32-bit ids."""

    xids: deque[int] = field(default_factory=lambda: deque(maxlen=10_000))

    def add(self, xid: int) -> None:
        """Add a transaction. The stream's thread calls this while other threads read."""
        self.xids.append(xid)

    def unseen(self, visible: VisibleTransactions) -> bool:
        """Return whether a snapshot does not show one of these transactions."""
        return not all(map(visible.shows, tuple(self.xids)))


class PgChunks(ChunkThreads):
    """Chunk reader of a PostgreSQL source; implements `chunk_requests.ChunkReader`. `close` ends its threads."""

    def __init__(self, source: Source, streamed: StreamedTransactions, *, rows: int = CHUNK) -> None:
        super().__init__(lambda: _reading(source, streamed, rows), reusable=lambda reading: not reading.passed)
        self._source = source

    def request(self, request: ChunkRequest) -> None:
        """Implements `ChunkReader.request`. Raises Skippable if the host's policy forbids reading rows."""
        super().request(permitted_request(self._source, request))


@contextmanager
def _reading(source: Source, streamed: StreamedTransactions, rows: int) -> Iterator[_Reading]:
    with connected(source) as connection:
        yield _Reading(connection, source, streamed, rows)


class _Reading:
    """Reads the chunks of one range of a table, one after the other, then maybe those of another range.

    `passed`: a pass has begun, whose transaction stays open. Then the connection cannot read another range.
    """

    def __init__(self, connection: PgConnection, source: Source, streamed: StreamedTransactions, rows: int) -> None:
        self._connection, self._source, self._streamed, self._rows = connection, source, streamed, rows
        self._types: PgTypes = types_of(connection, source)
        self.passed = False
        self._high: Position | None = None

    def read(self, request: ChunkRequest) -> Chunk:
        """Read the requested chunk. Implements `TableReading`."""
        with translated(self._source, f"read {request.schema.table_id}"):
            if request.keys:
                return self._within(lambda: self._keyed(request))
            if request.after is None and not self.passed:
                self._wait_for_older()
            if not request.unique:
                return self._page(request)
            return self._within(lambda: self._walk(request))

    def _within(self, read: Callable[[], Chunk]) -> Chunk:
        """Call `read` in a snapshot that shows everything streamed; then make the log advance beyond the chunk's
        `high`."""
        self._begin()
        chunk = read()
        high = self._end_of_log()
        self._connection.query("COMMIT")
        self._connection.query(_NUDGE)
        return replace(chunk, high=high)

    def _walk(self, request: ChunkRequest) -> Chunk:
        schema, last = request.schema, request.last
        table = self._table(schema)
        source = _rows_of(table, schema)
        if last is None:
            found = self._connection.texts(selects.select_last(schema, source, request.where))
            last = list(found[0]) if found else None
        rows: list[tuple[bytes | None, ...]] = []
        if last is not None:
            sql, arguments = selects.select_rows(schema, source, request.after, last, request.where, self._rows)
            rows = self._connection.query(sql, arguments)
        width = len(schema.columns)
        after = [(value or b"").decode() for value in rows[-1][width:]] if len(rows) == self._rows else None
        cuts: list[Key] = []
        if request.divide > 1 and after and last:
            cuts = cuts_of(self._connection, schema, source, after, last, request.divide, LEAST_CHUNKS * self._rows)
        return Chunk(
            request=request,
            images=list(_encoded(table, schema, rows)),
            after=after,
            last=last,
            high=request.position,
            total=self._about(request) if request.after is None else None,
            cuts=tuple(cuts),
        )

    def _keyed(self, request: ChunkRequest) -> Chunk:
        table = self._table(request.schema)
        source = _rows_of(table, request.schema)
        images: list[Image] = []
        for at in range(0, len(request.keys), KEYS):
            sql, arguments = selects.select_keys(request.schema, source, request.keys[at : at + KEYS])
            images += _images(table, request.schema, self._connection.query(sql, arguments))
        return Chunk(request=request, images=images, after=None, last=None, high=request.position)

    def _page(self, request: ChunkRequest) -> Chunk:
        """Return the next chunk of a table that one SELECT reads, in any order.

        All chunks show the state at the beginning of that SELECT."""
        total = None
        if not self.passed:
            self._begin()
            total = self._about(request)
            source = _rows_of(self._table(request.schema), request.schema)
            every = selects.select_all(request.schema, source, request.where)
            self._connection.query(f"DECLARE pass NO SCROLL CURSOR FOR {every}")
            self._high, self.passed = self._end_of_log(), True
            with connected(self._source) as other:
                other.query(_NUDGE)
        assert self._high is not None, "it was noted when the pass began"
        rows = self._connection.query(f"FETCH {self._rows} FROM pass")
        after: list[Any] | None = PASS if rows else None
        images = list(_images(self._table(request.schema), request.schema, rows))
        return Chunk(request=request, images=images, after=after, last=None, high=self._high, total=total)

    def _table(self, schema: TableSchema) -> TableShown:
        """Return the table as this snapshot's catalog has it.

        Raises Retriable if the table was altered since its schema was read. The log shows that only before the table's
        next row, but a restarted session sees it at once.
        """
        table = schema.table_id
        which = f"n.nspname = {selects.literal(table.database)} AND c.relname = {selects.literal(table.table)}"
        found = shown(self._connection, self._source, which, self._types).get((table.database, table.table))
        columns = {column.name: column.column_type for column in found.definition.columns} if found else {}
        if found is None or any(columns.get(column.name) != column.column_type for column in schema.columns):
            raise Retriable(f"source {self._source.name}: table {table} was altered while it was read", retry_after=0.1)
        return found

    def _about(self, request: ChunkRequest) -> int | None:
        """Return the server's estimate of the number of rows; None if a condition excludes some."""
        if request.where:
            return None
        name = selects.literal(selects.named(request.schema.table_id))
        ((rows,),) = self._connection.texts(f"SELECT reltuples::bigint FROM pg_class WHERE oid = {name}::regclass")
        return int(rows) if int(rows) >= 0 else None

    def _begin(self) -> None:
        """Begin a snapshot that shows everything that was streamed."""
        deadline = time.monotonic() + TIMEOUT
        while True:
            self._connection.query(_BEGIN)
            visible = self._visible()
            hanging = [int(xid) for (xid,) in self._connection.texts(_WAITS)]
            if not self._streamed.unseen(visible) and all(map(visible.shows, hanging)):
                return
            self._connection.query("ROLLBACK")
            if time.monotonic() > deadline:
                raise Retriable(
                    f"source {self._source.name}: commits in the log stay invisible",
                    "check whether a synchronous standby is unavailable (synchronous_standby_names)",
                )
            time.sleep(0.02)

    def _wait_for_older(self) -> None:
        deadline = time.monotonic() + TIMEOUT
        newest = self._visible().xmax
        while self._visible().xmin < newest:
            if time.monotonic() > deadline:
                raise held_up(self._connection, self._source, "a table cannot be read for the first time")
            time.sleep(0.02)

    def _visible(self) -> VisibleTransactions:
        ((text,),) = self._connection.texts("SELECT pg_current_snapshot()")
        return visible_of(text)

    def _end_of_log(self) -> Position:
        ((lsn,),) = self._connection.texts("SELECT pg_current_wal_insert_lsn()")
        return Position(file="", pos=lsn_of(lsn), gtid_set="", sequence=0)


def _rows_of(table: TableShown, schema: TableSchema) -> str:
    return selects.rows_of(schema.table_id, partitioned=table.partitioned)


def _encoded(
    table: TableShown, schema: TableSchema, rows: list[tuple[bytes | None, ...]]
) -> Iterator[Image | EncodedRow]:
    """Yield rows as JSON; a row with a value without canonical form as an image."""
    write, width = json_rows(schema, table), len(schema.columns)
    for row in rows:
        try:
            yield write(row[:width])
        except (ValueError, ArithmeticError):
            yield from _images(table, schema, [row])


def _images(table: TableShown, schema: TableSchema, rows: list[tuple[bytes | None, ...]]) -> Iterator[Image]:
    """Yield the images of rows, read with the column types of this snapshot."""
    reads = tuple((column.name, table.reads[column.name]) for column in schema.columns)
    for row in rows:
        yield image_of(reads, iter(row[: len(reads)]))
