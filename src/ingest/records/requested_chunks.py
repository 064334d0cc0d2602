"""Keep the chunks of a source that are requested or wait to be published, and the keys that the log changes until then.

Of each range of a table, one chunk is read while the one before it waits until the log has been published up to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from cdc.model.event import Position
from cdc.model.schema import TableId
from ingest.records.chunk_requests import PASS, Chunk, ChunkRequest


@dataclass(slots=True)
class RequestedChunk:
    """A request and, once it was read, its chunk. The sets of `windows` contain the keys that the log has changed since
    the request."""

    request: ChunkRequest
    windows: list[set[bytes]]
    chunk: Chunk | None = None

    @property
    def touched(self) -> set[bytes]:
        """Return the keys that the log has changed since the request."""
        found = [window for window in self.windows if window]
        return found[0] if len(found) == 1 else set[bytes]().union(*found)


class RequestedChunks:
    """The ranges that are being read, with their requested chunks in the order of the requests.

    `windows` contains, for each table, the set to which changed keys must be added. Each request begins a new set. The
    new set also belongs to the windows of the table's earlier requests. So each chunk has exactly the keys since its
    own request, and no set grows for longer than one chunk is read.
    """

    def __init__(self) -> None:
        self.windows: dict[TableId, set[bytes]] = {}
        self._ranges: dict[tuple[TableId, int], list[RequestedChunk]] = {}

    def __len__(self) -> int:
        return len(self._ranges)

    def __contains__(self, at: tuple[TableId, int]) -> bool:
        return at in self._ranges

    def of(self, table: TableId) -> list[RequestedChunk]:
        """Return the requested chunks of a table."""
        return [one for (of, _), found in self._ranges.items() if of == table for one in found]

    def ranges(self) -> Iterator[tuple[TableId, int, RequestedChunk | None]]:
        """Yield the ranges whose next chunk may be requested now, each with its newest chunk, which waits to be
        published."""
        for (table, part), found in list(self._ranges.items()):
            if not found:
                yield table, part, None
            elif len(found) == 1 and found[0].chunk is not None:
                yield table, part, found[0]

    def begin(self, request: ChunkRequest) -> None:
        """Add a request, and begin its window."""
        table = request.schema.table_id
        if request.after != PASS or table not in self.windows:
            window = self.windows[table] = set()
            for earlier in self.of(table):
                earlier.windows.append(window)
        chunks = self._ranges.setdefault((table, request.part), [])
        chunks.append(RequestedChunk(request, [self.windows[table]]))

    def take(self, chunk: Chunk) -> None:
        """Add a chunk that was read to its request. A chunk that was discarded is ignored."""
        for one in self._ranges.get((chunk.request.schema.table_id, chunk.request.part), ()):
            if one.request.number == chunk.request.number:
                one.chunk = chunk

    def due(self, reached: Callable[[Position], bool]) -> list[RequestedChunk]:
        """Return the chunks that can be published, in order: the log has been read up to them."""
        due: list[RequestedChunk] = []
        for found in self._ranges.values():
            for one in found:
                if one.chunk is None or not reached(one.chunk.high):
                    break
                due.append(one)
        return due

    def published(self, one: RequestedChunk) -> None:
        """Remove a published chunk, and its range if that is complete."""
        assert one.chunk is not None, "it was published"
        table, part = one.request.schema.table_id, one.request.part
        self._ranges[table, part].remove(one)
        if one.chunk.after is None:
            del self._ranges[table, part]
        if one.chunk.after != PASS and not self.of(table):
            self.windows.pop(table, None)

    def leave(self, table: TableId, part: int) -> None:
        """Stop to read a range."""
        self._ranges.pop((table, part), None)

    def discard(self, table: TableId) -> None:
        """Remove everything of a table."""
        for at in [at for at in self._ranges if at[0] == table]:
            del self._ranges[at]
        self.windows.pop(table, None)
