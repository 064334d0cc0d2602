"""Take snapshots of tables in chunks while the log is followed, without locks on the source and without writes to it.

While a chunk is read, the keys that the log changes are collected in the chunk's *window*. A chunk shows everything up
to the position of its request (`ChunkReader` waits for that), and nothing later than its position `high`. Once the log
has been published up to `high`, the chunk's rows are published, except for keys in the window, of which the log has
newer images. DDL or TRUNCATE discards the chunk, and it is read again. Progress is committed with the rows, so after a
crash a snapshot resumes at its next chunk. Source: DBLog (Andreakis, Papapanagiotou), with positions as watermarks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from cdc.model.errors import Skippable
from cdc.model.event import Position
from cdc.model.schema import TableId, TableSchema
from ingest.events.log_events import Image, Row
from ingest.events.tables import Tables
from ingest.records.capture_interfaces import Record
from ingest.records.images import snapshot_records
from ingest.records.records import Recorder

# Stored as `after` for a table that one SELECT reads (a pass). All its chunks show the state at the beginning of the
# pass. So the window lasts from there on, and an interrupted pass starts again.
PASS = ["pass"]
# Used as a marker's number for a snapshot whose marker must not remove rows.
REPAIRS_ONLY = -1
Key = list[Any]  # values of key columns as the reader wrote them: JSON, opaque here


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkRequest:
    """Request for the next rows of a table, with keys above `after` (None: from the beginning) up to `last` (None:
    unknown).

    The rows must include every change before `position`. `where` is a condition, or empty. `unique`: no two rows have
    equal keys. If `keys` is set, only the rows with these keys are read, all in one chunk.
    """

    number: int
    schema: TableSchema
    position: Position
    after: Key | None
    last: Key | None
    where: str
    unique: bool = True
    keys: tuple[Row, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """Rows that were read for a request. They show nothing later than the position `high`.

    `after` is where the next chunk begins; None at the end of the table. `last` is the greatest key at the first chunk.
    `total` is the approximate number of rows, set on a table's first chunk. `failed` is why the table cannot be read.
    """

    request: ChunkRequest
    images: list[Image]
    after: Key | None
    last: Key | None
    high: Position
    total: int | None = None
    failed: Skippable | None = None


class ChunkReader(Protocol):
    """Reads chunks of several tables in the background. `ready` raises the errors of reading."""

    def request(self, request: ChunkRequest) -> None:
        """Start to read a chunk. Does not block."""

    def ready(self) -> list[Chunk]:
        """Return the chunks that were read since the last call. Does not block."""


class Snapshots:
    """The running snapshots of one source. `state` is their progress as JSON, by `database.table`.

    `partial` are the tables whose topic does not contain all rows (`cdc.model.event.SourceInfo.partial`). A table is
    partial until its snapshot is complete, and forever if a condition excludes rows. `parallel` is the maximum number
    of tables read at the same time. `reads`: the source's tables can be read.
    """

    def __init__(
        self,
        recorder: Recorder,
        tables: Tables,
        state: Mapping[str, Any],
        *,
        partial: Iterable[str] = (),
        parallel: int = 2,
        reads: bool = True,
    ) -> None:
        self.reads = reads
        self._recorder, self._tables, self._parallel = recorder, tables, parallel
        self._state: dict[str, dict[str, Any]] = {name: dict(entry) for name, entry in state.items()}
        for entry in self._state.values():
            if entry.get("after") == PASS:
                del entry["after"]
        self.partial = {self._table(name) for name in (*partial, *self._state)}
        self._requested: dict[TableId, ChunkRequest] = {}
        self._waiting: dict[TableId, Chunk] = {}
        self._number = 0
        self.windows: dict[TableId, set[bytes]] = {}
        self.paused = self.moved = False
        self.refused = self.rows = 0

    def take_moved(self) -> bool:
        """Return whether there was progress to commit since the last call."""
        moved, self.moved = self.moved, False
        return moved

    @property
    def state(self) -> Mapping[str, Any]:
        """Return the progress to commit with the records; empty if no snapshot is running."""
        return {name: dict(entry) for name, entry in self._state.items()}

    @property
    def initial(self) -> bool:
        """Return whether a table's first snapshot is still running."""
        return any(entry.get("initial") for entry in self._state.values())

    def __bool__(self) -> bool:
        return bool(self._state)

    def start(self, table: TableId, *, initial: bool = False, where: str = "", marker: int | None = None) -> None:
        """Start the snapshot of a table, or restart one that is running.

        `marker` is a sequence number. At the end, a marker with that number removes rows that the snapshot did not
        contain (`joins.steps.truncation`); then repairs of the table restart. With REPAIRS_ONLY no row is removed.
        `where` is ignored if a snapshot of all rows is running. If the source's tables cannot be read, the table only
        becomes partial.
        """
        self.void(table)
        if not self.reads and not initial:
            self.partial.add(table)
            return
        name = table.name
        known = self._state.get(name)
        initial = initial or bool((known or {}).get("initial"))
        if known is not None and not known.get("where"):
            where = ""
        if marker == REPAIRS_ONLY and not where:
            marker = (known or {}).get("marker")
        whole = table not in self.partial if known is None else known.get("whole", False)
        self._state[name] = {"rows": 0, "whole": whole}
        self.partial.add(table)
        if initial:
            self._state[name]["initial"] = True
        if where:
            self._state[name]["where"] = where
        if marker is not None:
            self._state[name]["marker"] = marker

    def stop(self, table: TableId) -> None:
        """Stop a table's snapshot. Rows that are already published stay."""
        self.void(table)
        self._state.pop(table.name, None)

    def give_up(self, table: TableId) -> bool:
        """Stop a table's snapshot if a signal began it with a condition, because such a snapshot cannot be read.

        Returns False, and changes nothing, for every other snapshot: it is necessary, and will be tried again.
        """
        entry = self._state.get(table.name, {})
        if entry.get("initial") or entry.get("where", "") in ("", self._tables.where(table)):
            return False
        self.stop(table)
        if entry.get("whole"):
            self.partial.discard(table)
        self.moved = True
        return True

    def gone(self, table: TableId) -> None:
        """Forget a dropped table: a new table of the same name begins empty."""
        self.stop(table)
        self.partial.discard(table)

    def void(self, table: TableId) -> None:
        """Discard the current chunk of a table and read it again, because the table changed as a whole."""
        self._requested.pop(table, None)
        self._waiting.pop(table, None)
        self.windows.pop(table, None)
        entry = self._state.get(table.name, {})
        if entry.get("after") == PASS:
            del entry["after"]

    def restart(self, table: TableId) -> None:
        """Restart a running snapshot of a table from its beginning, because the primary key changed."""
        entry = self._state.get(table.name)
        if entry is not None:
            self.void(table)
            entry.pop("after", None)
            entry.pop("last", None)

    def turn(
        self,
        reader: ChunkReader,
        position: Callable[[], Position],
        reached: Callable[[Position], bool],
        now_ms: int,
    ) -> list[Record]:
        """Return the records of chunks that can be published, and request more chunks. Call it between two
        transactions.

        `position` returns the current position in the log; `reached` returns whether the log has been read up to a
        position. Sets `moved` if there is progress to commit.
        """
        for chunk in reader.ready():
            table = chunk.request.schema.table_id
            known = self._requested.get(table)
            if known is not None and known.number == chunk.request.number:
                self._waiting[table] = chunk
        records: list[Record] = []
        for table, chunk in list(self._waiting.items()):
            if reached(chunk.high):
                records += self._publish(table, chunk, now_ms)
        if not self.paused:
            self._ask(reader, position, now_ms)
        return records

    def _ask(self, reader: ChunkReader, position: Callable[[], Position], now_ms: int) -> None:
        for name, entry in self._state.items():
            if len(self._requested) >= self._parallel:
                return
            table = self._table(name)
            if table in self._requested:
                continue
            try:
                schema = self._tables.read_schema(table)
            except Skippable:
                continue  # The table is in quarantine. Its snapshot continues once its columns are known.
            self._number += 1
            request = ChunkRequest(
                number=self._number,
                schema=schema,
                position=position(),
                after=entry.get("after"),
                last=entry.get("last"),
                where=entry.get("where", ""),
                unique=self._tables.is_unique(schema),
            )
            self._requested[table] = request
            entry.setdefault("began_ms", now_ms)
            self.windows.setdefault(table, set())
            reader.request(request)

    def _publish(self, table: TableId, chunk: Chunk, now_ms: int) -> list[Record]:
        """Return the records of a chunk's rows, without those whose keys changed in its window, and record the
        progress."""
        touched = self.windows.get(table, set())
        writer = self._recorder.writer(self._tables.schema(table), self._tables.shape(table))
        made = snapshot_records(self._recorder, writer, chunk.images, chunk.request.position, now_ms)
        records = [record for record in made if record.topic != writer.topic or record.key not in touched]
        self.refused += sum(record.topic == self._recorder.dead_letters for record in records)
        self._requested.pop(table)
        self._waiting.pop(table)
        if chunk.after != PASS:
            self.windows.pop(table)
        name = table.name
        entry = self._state[name]
        entry["rows"] += len(chunk.images)
        if chunk.total is not None:
            entry["total"] = chunk.total
        self.rows += sum(record.topic == writer.topic for record in records)
        self.moved = True
        if chunk.after is not None:
            entry |= {"after": chunk.after, "last": chunk.last}
            return records
        del self._state[name]
        if entry.get("whole") or not entry.get("where"):
            self.partial.discard(table)
        if entry.get("marker") is not None:
            low = chunk.request.position
            mark = writer.marker(low, entry["marker"], now_ms)
            records.append(mark)
        return records

    def _table(self, name: str) -> TableId:
        return self._tables.named(name)

    def under_way(self, table: TableId) -> int | None:
        """Return the number of a table's chunk that is being read; None if there is none, -1 for all chunks of one
        pass."""
        request = self._requested.get(table)
        return None if request is None else -1 if request.after == PASS else request.number

    def progress(self) -> Mapping[str, int]:
        """Return the number of rows read so far, by `database.table`."""
        return {name: entry["rows"] for name, entry in self._state.items()}
