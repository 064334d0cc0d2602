"""How open mends are closed: searched, read, set right, each a step of a turn between two transactions; pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

import orjson

from cdc.model.errors import Skippable
from cdc.model.event import Position
from cdc.model.schema import TableId
from ingest.events.log_events import Image, RefusedImage
from ingest.records.capture_interfaces import Record
from ingest.records.chunks import walkable
from ingest.records.findings import Search
from ingest.records.images import represented, tellable
from ingest.records.records import TableWriter
from ingest.records.snapshots import Chunk, ChunkReader, ChunkRequest
from ingest.repair.patches import Patch, Row, steps
from ingest.repair.repairs import MOST, Mend, Mends, name_of, values_of

_dumps = orjson.dumps
_NULL = b"null"


class Searching(Protocol):
    """The log, as far as a mend needs it: `seams.ChangeLog`."""

    def search(self, search: Search) -> None:
        """Begin to show it all that is committed in its topic, beside everything else."""


class Rounds(Mends):
    """Mends that go on: each table's in rounds, which take whatever has been opened by then."""

    def turn(
        self,
        reader: Shared,
        log: Searching,
        position: Callable[[], Position],
        reached: Callable[[Position], bool],
        now_ms: int,
    ) -> list[Record]:
        """Between two transactions of the log, before the snapshots' turn: go on with what is under way.

        `moved` is set when there is something to be committed.
        """
        for chunk in reader.keyed():
            for mend in self.mends.values():
                if mend.request is chunk.request:
                    mend.chunk = chunk
        for name, number in list(self.again.items()):
            if name not in self.snapshots.state:
                self.snapshots.start(self._id(name), marker=number)
                del self.again[name]
                self.moved = True
        if not self.mends:
            self._chased.clear()
        records: list[Record] = []
        for table, mend in list(self.mends.items()):
            if self.mends.get(table) is mend:
                records += self._go_on(table, mend, reader, log, position, reached, now_ms)
        for table, mend in self.mends.items():
            if table in self.snapshots.windows:  # a chunk that is published now tells nothing of what is held
                self.snapshots.windows[table].update(mend.keys)
        return records

    def _go_on(
        self,
        table: TableId,
        mend: Mend,
        reader: Shared,
        log: Searching,
        position: Callable[[], Position],
        reached: Callable[[Position], bool],
        now_ms: int,
    ) -> list[Record]:
        if mend.search is not None and mend.search.failed is not None:
            raise mend.search.failed
        match mend.stage:
            case "waiting":
                if not mend.fresh and now_ms >= mend.rests_until_ms:
                    self._begin(table, mend, log, now_ms)
            case "finding":
                self._find(table, mend)
            case "holding":
                if not mend.fresh:
                    assert mend.search is not None, "it was found by a search"
                    log.search(mend.search)
                    mend.stage = "reading"
            case "reading":
                if mend.request is None:
                    self._ask(table, mend, reader, position)
                elif mend.search is not None and mend.search.done and mend.chunk is not None:
                    if mend.search.full:
                        self.untold([table], "partial", self.number())
                    elif reached(mend.chunk.high):
                        return self._mended(table, mend, mend.search, mend.chunk, now_ms)
        return []

    def _begin(self, table: TableId, mend: Mend, log: Searching, now_ms: int) -> None:
        if mend.lost and mend.behind is not None and self.snapshots.under_way(table) == mend.behind:
            return
        if (not mend.keys and not mend.lost) or not self.tables.captured(table.database, table.table):
            self.dissolve(table)
            self.moved = True
            return
        try:
            schema = self.tables.read_schema(table)
        except Skippable:
            return  # in quarantine: it goes on when its columns are known
        if not walkable(schema) or not self.tables.is_unique(schema):
            self.untold([table], "partial", self.number())
            return
        mend.mine, mend.wanted, mend.began_ms = list(mend.keys), list(mend.lost), now_ms
        mend.search = Search(self.topic(table), mend.mine, mend.wanted, MOST)
        mend.stage = "finding" if mend.wanted else "reading"
        log.search(mend.search)

    def _find(self, table: TableId, mend: Mend) -> None:
        """The rows that went with a parent: hold them, and look again at what was published of them meanwhile."""
        search = mend.search
        assert search is not None, "it was begun"
        if not search.done:
            return
        found = search.concerned(self.tables.schema(table).primary_key)
        if search.full or len(mend.keys) + len(found) > MOST:
            self.untold([table], "cascade", self.number())
            return
        for one in mend.wanted:
            mend.lost.pop(one, None)
        self.moved, mend.wanted = True, []
        for gone in search.vanished:
            self._chase(table, gone.before, gone.after, gone.number)
        if not found and not mend.mine:
            self._rest(mend)
            return
        seen = {*search.found, *mend.mine}
        mend.mine += [key for key in found if key not in mend.keys]
        mend.keys.update(found)
        if seen.issuperset(mend.mine):
            search.again(mend.mine)
        else:
            mend.search = Search(self.topic(table), mend.mine, (), MOST)
        mend.stage, mend.fresh = "holding", True

    def _ask(self, table: TableId, mend: Mend, reader: Shared, position: Callable[[], Position]) -> None:
        try:
            schema = self.tables.read_schema(table)
        except Skippable:
            return
        mend.patches.clear()
        keys = tuple(mend.keys[key] for key in mend.mine)
        mend.request = ChunkRequest(
            number=0, schema=schema, position=position(), after=None, last=None, where="", keys=keys
        )
        reader.request(mend.request)

    def _mended(self, table: TableId, mend: Mend, search: Search, chunk: Chunk, now_ms: int) -> list[Record]:
        writer = self.recorder.writer(self.tables.schema(table), self.tables.shape(table))
        records: list[Record] = []
        read = _by_key(writer, chunk.images)
        anyway = name_of(table) in self.snapshots.state  # whose marker ends all rows that were told before it
        for at in mend.mine:
            known, row = mend.patches.get(at, Patch()).on(read.get(at))
            if not known:
                continue  # it stays held, and is read again
            image = None if row is None else tellable(row)
            if isinstance(image, RefusedImage):
                records.append(self.recorder.unread(image, writer, chunk.request.position, now_ms))
                image = None
            for step in steps(search.found.get(at), image, anyway=anyway):
                source = writer.format.read(
                    now_ms, chunk.request.position, partial=step.stale or table in self.snapshots.partial
                )
                place = source, 0, self.number()
                value = writer.format.alone(step.op, _dumps(step.before), _dumps(step.after), *place, now_ms)
                records.append(Record(writer.topic, at, value))
                for child, wanted in self.foreign_keys.affected(table, step.before, step.after):
                    self.lose(child, wanted)
            found = search.found.get(at)
            if found is not None and found.ended is not None:
                self._chase(table, found.ended[0], image, found.ended[1])
            if image is None:
                records.append(Record(writer.topic, at, None))
            del mend.keys[at]
        self.snapshots.windows.get(table, set()).update(mend.mine)
        self.counts["rows"] += len(mend.mine)
        self.moved = True
        mend.rests_until_ms = now_ms + 3 * (now_ms - mend.began_ms)
        self._rest(mend)
        return records

    def _chase(self, table: TableId, before: Row, after: Row | None, number: int) -> None:
        """What went with a row that a marker ended; rows that refer to each other come round again."""
        for child, wanted in self.foreign_keys.affected(table, before, after):
            if (child, wanted, number) not in self._chased:
                self._chased.add((child, wanted, number))
                self.lose(child, wanted)

    def _rest(self, mend: Mend) -> None:
        fresh = mend.fresh
        mend.begin_again()
        mend.fresh = fresh


class Shared:
    """One reader of chunks for two: the snapshots' come out of `ready`, the rows read by key out of `keyed`."""

    def __init__(self, reader: ChunkReader) -> None:
        self._reader = reader
        self._chunks: list[Chunk] = []
        self._keyed: list[Chunk] = []
        self._failed: dict[TableId, Skippable] = {}

    def request(self, request: ChunkRequest) -> None:
        """See `snapshots.ChunkReader`."""
        try:
            self._reader.request(request)
        except Skippable as error:  # told by `failed`
            self._failed[request.schema.table_id] = error

    def failed(self) -> dict[TableId, Skippable]:
        """Tables that cannot be read, since the last call."""
        found, self._failed = self._failed, {}
        return found

    def ready(self) -> list[Chunk]:
        """See `snapshots.ChunkReader`."""
        self._take()
        found, self._chunks = self._chunks, []
        return found

    def keyed(self) -> list[Chunk]:
        """The same of requests that name keys."""
        self._take()
        found, self._keyed = self._keyed, []
        return found

    def _take(self) -> None:
        for chunk in self._reader.ready():
            if chunk.failed is not None:
                self._failed[chunk.request.schema.table_id] = chunk.failed
                continue
            (self._keyed if chunk.request.keys else self._chunks).append(chunk)


def _by_key(writer: TableWriter, images: Iterable[Image]) -> dict[bytes, Image]:
    """Images by their keys, in the shape in which they leave."""
    found: dict[bytes, Image] = {}
    for image in images:
        values = values_of(image)
        if writer.shape is not None:
            writer.shape(values)
        if (key := writer.shown_key(values)) is not None:
            found[key] = represented(image, writer)
    return found
