"""Default methods for sources that are only a stream, without tables to read: mirrored topics, syslog messages."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from cdc.model.event import Position
from ingest.events.foreign_keys import ForeignKeys
from ingest.records.chunk_requests import Chunk, ChunkRequest


class NoChunks:
    """A chunk reader for which every table is empty; implements `snapshots.ChunkReader`."""

    def __init__(self) -> None:
        self._done: list[Chunk] = []

    def request(self, request: ChunkRequest) -> None:
        """Start to read a chunk. Implements `ChunkReader`."""
        self._done.append(Chunk(request=request, images=[], after=None, last=None, high=request.position))

    def ready(self) -> list[Chunk]:
        """Return the chunks that were read since the last call. Implements `ChunkReader`."""
        found, self._done = self._done, []
        return found


class StreamOnlySource:
    """Base class of sources without tables; implements a part of `capture_interfaces.SourceServer`."""

    def holds(self, position: Position) -> bool:
        """Return True. The stream itself raises PositionLost when it opens, or while it is read."""
        return True

    def foreign_keys(self) -> ForeignKeys:
        """Return no foreign keys: the stream contains every change."""
        return ForeignKeys()

    def release(self, position: Position) -> None:
        """Do nothing: the source retains nothing for the capture."""

    @contextmanager
    def chunks(self) -> Iterator[NoChunks]:
        """Return a reader for which every table is empty."""
        yield NoChunks()
