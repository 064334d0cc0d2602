"""Run snapshots in chunks, interleaved with the log: live changes win, without locks and without writes.

While a chunk is read, the keys that the log changes are collected: the chunk's window. A chunk contains everything in
the log up to its request (`ChunkReader` waits for that) and nothing later than its `high`. When the log has been
published up to `high`, the rows whose keys are not in the window are published; for all others the log has newer
images. DDL or TRUNCATE in the window voids the chunk, and it is read again. Progress is committed with the rows, so a
snapshot resumes at the chunk after any crash. Source: DBLog (Andreakis, Papapanagiotou), with positions as watermarks.
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

# Stored in place of a key for tables that are read in one ordered pass. All chunks show the state at the pass's
# beginning, so the window lasts from there, and an interrupted pass starts again.
PASS = ["pass"]
# In place of a marker's number: it ends no rows.
REPAIRS_ONLY = -1
Key = list[Any]  # values of key columns as the reader wrote them: JSON, opaque here


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkRequest:
    """Request for the next rows of a table: after `after` (None: from the beginning), up to `last` (None: not known
    yet).

    `where` limits the rows. `unique`: no two rows share a key. The rows must include everything up to `position`. If
    `keys` is set, only their rows are read, all at once; a key is given by its columns' values.
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
    """Rows that were read for a request. `high` is a position later than everything that they show.

    `after` is where the next chunk begins, None at the table's end. `last` is the table's last key. `total` is the
    approximate row count, set on a table's first chunk. `failed`: the reason why the table cannot be read.
    """

    request: ChunkRequest
    images: list[Image]
    after: Key | None
    last: Key | None
    high: Position
    total: int | None = None
    failed: Skippable | None = None


class ChunkReader(Protocol):
    """Reads chunks of several tables at a time during capture. `ready` raises its errors."""

    def request(self, request: ChunkRequest) -> None:
        """Start to read."""

    def ready(self) -> list[Chunk]:
        """Return the chunks that were read since the last call. Never waits."""


class Snapshots:
    """Open snapshots of one source. `state` is their progress as JSON, by `database.table`.

    `partial`: tables whose topic does not hold their whole history (`cdc.model.event.SourceInfo.partial`). A table is
    partial until a snapshot of it is complete, and for good if a condition excludes rows.
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
        """Return whether a table of the first snapshot is incomplete."""
        return any(entry.get("initial") for entry in self._state.values())

    def __bool__(self) -> bool:
        return bool(self._state)

    def start(self, table: TableId, *, initial: bool = False, where: str = "", marker: int | None = None) -> None:
        """Start a table's snapshot, from its beginning if one is running.

        `marker` is a sequence number: at the end, a truncate marker removes rows that the snapshot did not contain
        (`joins.steps.truncation`), and repairs follow; -1 repairs only. A running snapshot of all rows is not limited
        by a later `where`. If tables cannot be read (not `reads`), the table becomes partial instead.
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
        """Stop a table's snapshot. Rows already published stay."""
        self.void(table)
        self._state.pop(table.name, None)

    def gone(self, table: TableId) -> None:
        """Forget a dropped table: a later one of the same name begins empty."""
        self.stop(table)
        self.partial.discard(table)

    def void(self, table: TableId) -> None:
        """Read again what is being read of a table, because the table was changed as a whole."""
        self._requested.pop(table, None)
        self._waiting.pop(table, None)
        self.windows.pop(table, None)
        entry = self._state.get(table.name, {})
        if entry.get("after") == PASS:
            del entry["after"]

    def restart(self, table: TableId) -> None:
        """Read a table from its beginning, because its key changed."""
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
        """Publish the chunks that are ready and request more. Called between two transactions of the log.

        `position` returns the place after the first of them; `reached` whether the log has been read up to a position.
        Sets `moved` if there is progress to commit.
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
                continue  # in quarantine: its snapshot continues once its columns are known
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
        """Return the chunk's rows whose keys did not change in its window, and record the progress."""
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
        """Return the number of a table's chunk that is requested and not published; for one pass, always the same."""
        request = self._requested.get(table)
        return None if request is None else -1 if request.after == PASS else request.number

    def progress(self) -> Mapping[str, int]:
        """Return the rows read so far, by table."""
        return {name: entry["rows"] for name, entry in self._state.items()}
