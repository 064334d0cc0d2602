"""Run the open repairs in rounds: search, re-read and correct, one step at a time between two transactions."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

import orjson

from cdc.model.errors import Skippable, TailorbirdError
from cdc.model.event import Position
from cdc.model.schema import TableId
from ingest.events.log_events import Image, RefusedImage
from ingest.records.capture_interfaces import Record
from ingest.records.chunk_requests import Chunk, ChunkReader, ChunkRequest
from ingest.records.chunks import walkable
from ingest.records.findings import Search
from ingest.records.images import represented, tellable
from ingest.records.records import TableWriter
from ingest.records.row_json import EncodedRow
from ingest.repair.patches import Row, RowPatch, corrections
from ingest.repair.repairs import MOST, OpenRepairs, TableRepair, name_of, values_of

_dumps = orjson.dumps
_NULL = b"null"


class SearchableLog(Protocol):
    """The part of `capture_interfaces.ChangeLog` that repairs need."""

    def search(self, search: Search) -> None:
        """Pass all committed records of a search's topic to it, in the background."""


class RepairRunner(OpenRepairs):
    """Runs the repair of each table in rounds. A round repairs the rows that were known when it began."""

    def turn(
        self,
        reader: SharedChunkReader,
        log: SearchableLog,
        position: Callable[[], Position],
        reached: Callable[[Position], bool],
        now_ms: int,
    ) -> list[Record]:
        """Return the corrections that are ready, and advance every repair by one step. Sets `moved` if there is news to
        commit.

        Call it between two transactions, before `Snapshots.turn`. `position` and `reached` are as there.
        """
        for chunk in reader.keyed():
            for repair in self.repairs.values():
                if repair.request is chunk.request:
                    repair.chunk = chunk
        for name, number in list(self.again.items()):
            if name not in self.snapshots.state:
                self.snapshots.start(self._id(name), marker=number)
                del self.again[name]
                self.moved = True
        if not self.repairs:
            self._chased.clear()
        records: list[Record] = []
        for table, repair in list(self.repairs.items()):
            if self.repairs.get(table) is repair:
                records += self._advance(table, repair, reader, log, position, reached, now_ms)
        for table, repair in self.repairs.items():
            if table in self.snapshots.windows:  # the repair publishes these rows, not the snapshot
                self.snapshots.windows[table].update(repair.keys)
        return records

    def _advance(
        self,
        table: TableId,
        repair: TableRepair,
        reader: SharedChunkReader,
        log: SearchableLog,
        position: Callable[[], Position],
        reached: Callable[[Position], bool],
        now_ms: int,
    ) -> list[Record]:
        if repair.search is not None and repair.search.failed is not None:
            raise repair.search.failed
        match repair.stage:
            case "waiting":
                if not repair.fresh and now_ms >= repair.rests_until_ms:
                    self._begin(table, repair, log, now_ms)
            case "finding":
                self._find(table, repair)
            case "holding":
                if not repair.fresh:
                    assert repair.search is not None, "a search precedes this stage"
                    log.search(repair.search)
                    repair.stage = "reading"
            case "reading":
                if repair.request is None:
                    self._request(table, repair, reader, position)
                elif repair.search is not None and repair.search.done and repair.chunk is not None:
                    if repair.search.full:
                        self.reread([table], "partial", self.number())
                    elif reached(repair.chunk.high):
                        return self._repaired(table, repair, repair.search, repair.chunk, now_ms)
        return []

    def _begin(self, table: TableId, repair: TableRepair, log: SearchableLog, now_ms: int) -> None:
        if repair.lost and self.snapshots.still_reads(table, repair.after_chunk):
            return
        if (not repair.keys and not repair.lost) or not self.tables.captured(table.database, table.table):
            self.drop(table)
            self.moved = True
            return
        try:
            schema = self.tables.read_schema(table)
        except Skippable:
            return  # The table is in quarantine. Its repair continues once its columns are known.
        if not walkable(schema) or not self.tables.is_unique(schema):
            self.reread([table], "partial", self.number())
            return
        repair.round_keys, repair.round_children, repair.began_ms = list(repair.keys), list(repair.lost), now_ms
        repair.search = Search(self.topic(table), repair.round_keys, repair.round_children, MOST)
        repair.stage = "finding" if repair.round_children else "reading"
        log.search(repair.search)

    def _find(self, table: TableId, repair: TableRepair) -> None:
        """Hold the keys that the search found, and search again for images of them that were published since."""
        search = repair.search
        assert search is not None, "the round began with a search"
        if not search.done:
            return
        found = search.concerned(self.tables.schema(table).primary_key)
        if search.full or len(repair.keys) + len(found) > MOST:
            self.reread([table], "cascade", self.number())
            return
        for one in repair.round_children:
            repair.lost.pop(one, None)
        self.moved, repair.round_children = True, []
        for gone in search.vanished:
            self._chase(table, gone.before, gone.after, gone.number)
        if not found and not repair.round_keys:
            self._rest(repair)
            return
        seen = {*search.found, *repair.round_keys}
        repair.round_keys += [key for key in found if key not in repair.keys]
        repair.keys.update(found)
        if seen.issuperset(repair.round_keys):
            search.again(repair.round_keys)
        else:
            repair.search = Search(self.topic(table), repair.round_keys, (), MOST)
        repair.stage, repair.fresh = "holding", True

    def _request(
        self, table: TableId, repair: TableRepair, reader: SharedChunkReader, position: Callable[[], Position]
    ) -> None:
        try:
            schema = self.tables.read_schema(table)
        except Skippable:
            return
        repair.patches.clear()
        keys = tuple(repair.keys[key] for key in repair.round_keys)
        repair.request = ChunkRequest(
            number=0, schema=schema, position=position(), after=None, last=None, where="", keys=keys
        )
        reader.request(repair.request)

    def _repaired(self, table: TableId, repair: TableRepair, search: Search, chunk: Chunk, now_ms: int) -> list[Record]:
        writer = self.recorder.writer(self.tables.schema(table), self.tables.shape(table))
        records: list[Record] = []
        read = _by_key(writer, chunk.images)
        # The marker of a running snapshot will remove rows that were published before it: publish them again.
        anyway = name_of(table) in self.snapshots.state
        for at in repair.round_keys:
            known, row = repair.patches.get(at, RowPatch()).apply_to(read.get(at))
            if not known:
                continue  # the key stays held, and the row is read once more
            image = None if row is None else tellable(row)
            if isinstance(image, RefusedImage):
                records.append(self.recorder.unread(image, writer, chunk.request.position, now_ms))
                image = None
            for step in corrections(search.found.get(at), image, anyway=anyway):
                source = writer.read(
                    now_ms, chunk.request.position, partial=step.stale or table in self.snapshots.partial
                )
                place = source, 0, self.number()
                value = writer.format.alone(step.op, _dumps(step.before), _dumps(step.after), *place, now_ms)
                records.append(Record(writer.topic, at, value))
                for child, wanted in self.foreign_keys.affected(table, step.before, step.after):
                    self.follow_children(child, wanted)
            found = search.found.get(at)
            if found is not None and found.ended is not None:
                self._chase(table, found.ended[0], image, found.ended[1])
            if image is None:
                records.append(Record(writer.topic, at, None))
            del repair.keys[at]
        self.snapshots.windows.get(table, set()).update(repair.round_keys)
        self.counts["rows"] += len(repair.round_keys)
        self.moved = True
        repair.rests_until_ms = now_ms + 3 * (now_ms - repair.began_ms)
        self._rest(repair)
        return records

    def _chase(self, table: TableId, before: Row, after: Row | None, number: int) -> None:
        """Start the repair of the child rows of a row that a marker removed. Does it once per row, because references
        may loop."""
        for child, wanted in self.foreign_keys.affected(table, before, after):
            if (child, wanted, number) not in self._chased:
                self._chased.add((child, wanted, number))
                self.follow_children(child, wanted)

    def _rest(self, repair: TableRepair) -> None:
        fresh = repair.fresh
        repair.restart()
        repair.fresh = fresh


class SharedChunkReader:
    """Shares one chunk reader between snapshots (`ready`) and repairs, which read rows by key (`keyed`)."""

    def __init__(self, reader: ChunkReader) -> None:
        self._reader = reader
        self._chunks: list[Chunk] = []
        self._keyed: list[Chunk] = []
        self._failed: dict[TableId, Skippable] = {}
        self._waiting: set[TableId] = set()
        self._waits: dict[str, TailorbirdError | None] = {}

    def request(self, request: ChunkRequest) -> None:
        """Start to read a chunk. Implements `ChunkReader`."""
        try:
            self._reader.request(request)
        except Skippable as error:  # the caller takes it from `failed`
            self._failed[request.schema.table_id] = error

    def failed(self) -> dict[TableId, Skippable]:
        """Return the tables of keyed requests that could not be read since the last call, with the reason."""
        found, self._failed = self._failed, {}
        return found

    def waits(self) -> dict[str, TailorbirdError | None]:
        """Return the tables that began to wait for their server since the last call, with the reason. None: it was
        read again."""
        found, self._waits = self._waits, {}
        return found

    def ready(self) -> list[Chunk]:
        """Return the chunks that were read since the last call. Implements `ChunkReader`."""
        self._take()
        found, self._chunks = self._chunks, []
        return found

    def keyed(self) -> list[Chunk]:
        """Return the chunks of requests with keys that were read since the last call."""
        self._take()
        found, self._keyed = self._keyed, []
        return found

    def _take(self) -> None:
        for chunk in self._reader.ready():
            table = chunk.request.schema.table_id
            if chunk.waits is not None:
                self._waiting.add(table)
                self._waits[table.name] = chunk.waits
                continue
            if table in self._waiting:
                self._waiting.discard(table)
                self._waits[table.name] = None
            if chunk.failed is not None:
                self._failed[table] = chunk.failed
                continue
            (self._keyed if chunk.request.keys else self._chunks).append(chunk)


def _by_key(writer: TableWriter, images: Iterable[Image | EncodedRow]) -> dict[bytes, Image]:
    """Return images by record key, after the table's filters and masks."""
    found: dict[bytes, Image] = {}
    for image in images:
        assert not isinstance(image, EncodedRow), "rows that are read by keys are not encoded"
        values = values_of(image)
        if writer.shape is not None:
            writer.shape(values)
        if (key := writer.shown_key(values)) is not None:
            found[key] = represented(image, writer)
    return found
