"""Take snapshots of tables in chunks while the log is followed, without locks on the source and without writes to it.

While a chunk is read, the keys that the log changes are collected in the chunk's *window*. A chunk shows everything up
to the position of its request (`ChunkReader` waits for that), and nothing later than its position `high`. Once the log
has been published up to `high`, the chunk's rows are published, except for keys in the window, of which the log has
newer images. DDL or TRUNCATE discards the chunk, and it is read again. Progress is committed with the rows, so after a
crash a snapshot resumes at its next chunk. Source: DBLog (Andreakis, Papapanagiotou), with positions as watermarks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from cdc.model.errors import Skippable
from cdc.model.event import Position
from cdc.model.schema import TableId
from cdc.persistent import PersistentMap
from ingest.events.tables import Tables
from ingest.records.capture_interfaces import Record
from ingest.records.chunk_requests import (
    PASS,
    ChunkReader,
    ChunkRequest,
    KeyRange,
    advanced,
    begun,
    from_beginning,
    ranges_of,
    resumable,
)
from ingest.records.images import snapshot_records
from ingest.records.records import Recorder
from ingest.records.requested_chunks import RequestedChunk, RequestedChunks
from ingest.records.waiting import WaitingTable

# Used as a marker's number for a snapshot whose marker must not remove rows.
REPAIRS_ONLY = -1
# A large table is divided into this many ranges for each that is read at the same time, so that all end together.
RANGES = 8


class Snapshots:
    """The running snapshots of one source. `state` is their progress as JSON, by `database.table`.

    `partial` are the tables whose topic does not contain all rows (`cdc.model.event.SourceInfo.partial`). Add tables
    with `mark_partial`. A table is partial until its snapshot is complete, and forever if a condition excludes rows.
    `waits` are the tables, by `database.table`, whose rows cannot be read for now.
    `parallel` is the maximum number of tables, or ranges of tables, read at the same time. `reads`: the source's tables
    can be read.

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
        entries: dict[str, Mapping[str, Any]] = {name: resumable(entry) for name, entry in state.items()}
        self._state, self._order = PersistentMap(entries), dict.fromkeys(entries)
        self._initial = sum(bool(entry.get("initial")) for entry in entries.values())
        self._names = PersistentMap(dict.fromkeys((*partial, *entries), True))
        self.partial = {self._table(name) for name in self._names}
        self._ended, self._read = set[str](), dict[str, int]()
        self._chunks, self._number = RequestedChunks(), 0
        self.waits: dict[str, WaitingTable] = {}
        self.windows = self._chunks.windows
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
        """Discard the current chunks of a table and read them again, because the table changed as a whole."""
        self._recorder.phases.end(table)
        self._chunks.discard(table)
        entry = self._state.get(table.name, {})
        if entry.get("after") == PASS:
            self._put(table.name, resumable(entry))

    def restart(self, table: TableId) -> None:
        """Restart a running snapshot of a table from its beginning, because the primary key changed."""
        entry = self._state.get(table.name)
        if entry is not None:
            self.void(table)
            self._put(table.name, from_beginning(entry))

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
            self._chunks.take(chunk)
        records: list[Record] = []
        for one in self._chunks.due(reached):
            records += self._publish(one, now_ms)
        if not self.paused:
            self._ask(reader, position, now_ms)
        return records

    def _ask(self, reader: ChunkReader, position: Callable[[], Position], now_ms: int) -> None:
        """Request the next chunks: first of the ranges that are being read, then of further ranges and tables."""
        chunks = self._chunks
        for table, part, newest in chunks.ranges():
            if newest is None:
                known = {one.part: one for one in ranges_of(self._state[table.name])}
                self._request(reader, table, known[part], position, now_ms)
            elif (read := newest.chunk) and read.after not in (None, PASS) and not read.cuts:
                self._request(reader, table, KeyRange(part, read.after, read.last), position, now_ms)
        for name in self._order if len(chunks) < self._parallel else ():
            table = self._table(name)
            for one in ranges_of(self._state[name]):
                if len(chunks) >= self._parallel:
                    return
                if (table, one.part) not in chunks:
                    self._request(reader, table, one, position, now_ms)

    def _request(
        self, reader: ChunkReader, table: TableId, rest: KeyRange, position: Callable[[], Position], now_ms: int
    ) -> None:
        name, entry = table.name, self._state[table.name]
        try:
            schema = self._tables.read_schema(table)
        except Skippable:
            self._chunks.leave(table, rest.part)
            return  # The table is in quarantine. Its snapshot continues once its columns are known.
        self._number += 1
        request = ChunkRequest(
            number=self._number,
            schema=schema,
            position=position(),
            after=rest.after,
            last=rest.last,
            where=entry.get("where", ""),
            unique=self._tables.is_unique(schema),
            part=rest.part,
            divide=RANGES * self._parallel if self._parallel > 1 and not begun(entry) else 1,
        )
        if "began_ms" not in entry:
            self._put(name, {**entry, "began_ms": now_ms})
        self._chunks.begin(request)
        reader.request(request)

    def _publish(self, one: RequestedChunk, now_ms: int) -> list[Record]:
        """Return the records of a chunk's rows, without those whose keys changed in its window, and record the
        progress."""
        chunk, table, touched = one.chunk, one.request.schema.table_id, one.touched
        assert chunk is not None, "it is due"
        writer = self._recorder.writer(self._tables.schema(table), self._tables.shape(table))
        made = snapshot_records(self._recorder, writer, chunk.images, chunk.request.position, now_ms)
        records = [record for record in made if record.topic != writer.topic or record.key not in touched]
        self.refused += sum(record.topic == self._recorder.dead_letters for record in records)
        self._chunks.published(one)
        name = table.name
        entry = dict(self._state[name])
        entry["rows"] += len(chunk.images)
        if chunk.total is not None:
            entry["total"] = chunk.total
        self.rows += sum(record.topic == writer.topic for record in records)
        self.moved = True
        if (rest := advanced(entry, chunk)) is not None:
            self._put(name, rest)
            self._read[name] = rest["rows"]
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
        """Return the number of a table's newest chunk that is being read; None if there is none, -1 for all chunks of
        one pass."""
        numbers = [-1 if one.request.after == PASS else one.request.number for one in self._chunks.of(table)]
        return max(numbers, default=None)

    def still_reads(self, table: TableId, number: int | None) -> bool:
        """Return whether a chunk is not published yet that was being read when `under_way` returned this number."""
        newest = self.under_way(table)
        if number is None or newest is None or -1 in (number, newest):
            return number is not None and number == newest
        return any(one.request.number <= number for one in self._chunks.of(table))

    def begun(self, name: str) -> bool:
        """Return whether rows of the running snapshot of a table (`database.table`) have been read."""
        return begun(self._state.get(name, {}))

    def take_progress(self) -> Mapping[str, int]:
        """Return the number of rows read so far, by `database.table`, of the tables read since the last call whose
        snapshots are still running."""
        read, self._read = self._read, {}
        return read
