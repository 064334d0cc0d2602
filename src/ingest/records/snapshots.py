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

from cdc.model.errors import Skippable, TailorbirdError
from cdc.model.event import Position
from cdc.model.schema import TableId, TableSchema
from cdc.persistent import PersistentMap
from ingest.events.log_events import Image, Row
from ingest.events.tables import Tables
from ingest.records.capture_interfaces import Record
from ingest.records.images import snapshot_records
from ingest.records.records import Recorder
from ingest.records.waiting import WaitingTable

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
    With `waits`, the chunk has no rows: it will be read later, and this is why it is not read yet.
    """

    request: ChunkRequest
    images: list[Image]
    after: Key | None
    last: Key | None
    high: Position
    total: int | None = None
    failed: Skippable | None = None
    waits: TailorbirdError | None = None


class ChunkReader(Protocol):
    """Reads chunks of several tables in the background. `ready` raises the errors of reading."""

    def request(self, request: ChunkRequest) -> None:
        """Start to read a chunk. Does not block."""

    def ready(self) -> list[Chunk]:
        """Return the chunks that were read since the last call. Does not block."""


class Snapshots:
    """The running snapshots of one source. `state` is their progress as JSON, by `database.table`.

    `partial` are the tables whose topic does not contain all rows (`cdc.model.event.SourceInfo.partial`). Add tables
    with `mark_partial`. A table is partial until its snapshot is complete, and forever if a condition excludes rows.
    `waits` are the tables, by `database.table`, whose rows cannot be read for now.
    `parallel` is the maximum number of tables read at the same time. `reads`: the source's tables can be read.

    A checkpoint holds `state` and `incomplete` as they are. They are immutable, so that no call copies the entries of
    all tables.
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
        entries = {name: _resumable(entry) for name, entry in state.items()}
        self._state, self._order = PersistentMap(entries), dict.fromkeys(entries)
        self._initial = sum(bool(entry.get("initial")) for entry in entries.values())
        self._names = PersistentMap(dict.fromkeys((*partial, *entries), True))
        self.partial = {self._table(name) for name in self._names}
        self._ended, self._read = set[str](), dict[str, int]()
        self._requested: dict[TableId, ChunkRequest] = {}
        self._waiting: dict[TableId, Chunk] = {}
        self._number = 0
        self.waits: dict[str, WaitingTable] = {}
        self.windows: dict[TableId, set[bytes]] = {}
        self.paused = self.moved = False
        self.refused = self.rows = 0

    def take_moved(self) -> bool:
        """Return whether there was progress to commit since the last call."""
        moved, self.moved = self.moved, False
        return moved

    @property
    def state(self) -> PersistentMap[str, Mapping[str, Any]]:
        """Return the progress to commit with the records; empty if no snapshot is running."""
        return self._state

    @property
    def incomplete(self) -> PersistentMap[str, bool]:
        """Return the names of `partial`, as keys, to commit with the records."""
        return self._names

    @property
    def initial(self) -> bool:
        """Return whether a table's first snapshot is still running."""
        return self._initial > 0

    def __bool__(self) -> bool:
        return bool(self._state)

    def take_ended(self) -> set[str]:
        """Return the tables whose snapshots are complete since the last call."""
        ended, self._ended = self._ended, set()
        return ended

    def mark_partial(self, table: TableId) -> None:
        """Add a table to `partial`."""
        self._recorder.phases.end(table)
        if table not in self.partial:
            self.partial.add(table)
            self._names = self._names.put(table.name, True)

    def _mark_complete(self, table: TableId) -> None:
        if table in self.partial:
            self.partial.discard(table)
            self._names = self._names.without(table.name)

    def _put(self, name: str, entry: Mapping[str, Any]) -> None:
        """Replace the entry of a table. Entries are never changed in place: checkpoints hold them."""
        self._initial += bool(entry.get("initial")) - bool(self._state.get(name, {}).get("initial"))
        self._state = self._state.put(name, entry)
        self._order.setdefault(name)

    def _drop(self, name: str) -> Mapping[str, Any]:
        """Remove the entry of a table, and return it; empty if there is none."""
        entry = self._state.get(name, {})
        self._initial -= bool(entry.get("initial"))
        self._state = self._state.without(name)
        self._order.pop(name, None)
        self._read.pop(name, None)
        return entry

    def start(self, table: TableId, *, initial: bool = False, where: str = "", marker: int | None = None) -> None:
        """Start the snapshot of a table, or restart one that is running.

        `marker` is a sequence number. At the end, a marker with that number removes rows that the snapshot did not
        contain (`joins.steps.truncation`); then repairs of the table restart. With REPAIRS_ONLY no row is removed.
        `where` is ignored if a snapshot of all rows is running. If the source's tables cannot be read, the table only
        becomes partial.
        """
        self.void(table)
        if not self.reads and not initial:
            self.mark_partial(table)
            return
        name = table.name
        known = self._state.get(name)
        initial = initial or bool((known or {}).get("initial"))
        if known is not None and not known.get("where"):
            where = ""
        if marker == REPAIRS_ONLY and not where:
            marker = (known or {}).get("marker")
        whole = table not in self.partial if known is None else known.get("whole", False)
        entry: dict[str, Any] = {"rows": 0, "whole": whole}
        self.mark_partial(table)
        if initial:
            entry["initial"] = True
        if where:
            entry["where"] = where
        if marker is not None:
            entry["marker"] = marker
        self._put(name, entry)

    def stop(self, table: TableId) -> None:
        """Stop a table's snapshot. Rows that are already published stay."""
        self.void(table)
        self._drop(table.name)

    def give_up(self, table: TableId) -> bool:
        """Stop a table's snapshot if a signal began it with a condition, because such a snapshot cannot be read.

        Returns False, and changes nothing, for every other snapshot: it is necessary, and will be tried again.
        """
        entry = self._state.get(table.name, {})
        if entry.get("initial") or entry.get("where", "") in ("", self._tables.where(table)):
            return False
        self.stop(table)
        if entry.get("whole"):
            self._mark_complete(table)
        self.moved = True
        return True

    def gone(self, table: TableId) -> None:
        """Forget a dropped table: a new table of the same name begins empty."""
        self.stop(table)
        self._mark_complete(table)

    def void(self, table: TableId) -> None:
        """Discard the current chunk of a table and read it again, because the table changed as a whole."""
        self._recorder.phases.end(table)
        self._requested.pop(table, None)
        self._waiting.pop(table, None)
        self.windows.pop(table, None)
        entry = self._state.get(table.name, {})
        if entry.get("after") == PASS:
            self._put(table.name, _resumable(entry))

    def restart(self, table: TableId) -> None:
        """Restart a running snapshot of a table from its beginning, because the primary key changed."""
        entry = self._state.get(table.name)
        if entry is not None:
            self.void(table)
            self._put(table.name, {k: v for k, v in entry.items() if k not in ("after", "last")})

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
        for name in self._order if len(self._requested) < self._parallel else ():
            if len(self._requested) >= self._parallel:
                return
            table, entry = self._table(name), self._state[name]
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
            if "began_ms" not in entry:
                self._put(name, {**entry, "began_ms": now_ms})
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
        entry = dict(self._state[name])
        entry["rows"] += len(chunk.images)
        if chunk.total is not None:
            entry["total"] = chunk.total
        self.rows += sum(record.topic == writer.topic for record in records)
        self.moved = True
        if chunk.after is not None:
            self._put(name, entry | {"after": chunk.after, "last": chunk.last})
            self._read[name] = entry["rows"]
            return records
        self._drop(name)
        self._ended.add(name)
        if entry.get("whole") or not entry.get("where"):
            self._mark_complete(table)
        if entry.get("marker") is not None:
            low = chunk.request.position
            mark = writer.marker(low, entry["marker"], now_ms)
            records.append(mark)
        if not entry.get("where"):
            self._recorder.phases.completed(table)
        return records

    def _table(self, name: str) -> TableId:
        return self._tables.named(name)

    def under_way(self, table: TableId) -> int | None:
        """Return the number of a table's chunk that is being read; None if there is none, -1 for all chunks of one
        pass."""
        request = self._requested.get(table)
        return None if request is None else -1 if request.after == PASS else request.number

    def take_progress(self) -> Mapping[str, int]:
        """Return the number of rows read so far, by `database.table`, of the tables read since the last call whose
        snapshots are still running."""
        read, self._read = self._read, {}
        return read


def _resumable(entry: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the entry of a table whose chunk is discarded: a pass starts again."""
    return {k: v for k, v in entry.items() if k != "after"} if entry.get("after") == PASS else dict(entry)
