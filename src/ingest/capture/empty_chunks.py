"""Sources of which there is nothing to read beside the log: topics, what is received; pure."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from cdc.model.event import Position
from ingest.events.foreign_keys import ForeignKeys
from ingest.records.snapshots import Chunk, ChunkRequest


class NoChunks:
    """Implements `snapshots.ChunkReader`: each table is at its end."""

    def __init__(self) -> None:
        self._done: list[Chunk] = []

    def request(self, request: ChunkRequest) -> None:
        """See `snapshots.ChunkReader`."""
        self._done.append(Chunk(request=request, images=[], after=None, last=None, high=request.position))

    def ready(self) -> list[Chunk]:
        """See `snapshots.ChunkReader`."""
        found, self._done = self._done, []
        return found


class StreamAlone:
    """The part of `seams.SourceServer` that sources have in common which are a stream, and nothing beside it."""

    def holds(self, position: Position) -> bool:
        """Whether a position is still there is said when it is asked for, and what was compacted by what stayed."""
        return True

    def foreign_keys(self) -> ForeignKeys:
        """None: whoever wrote the stream has told what they change, or not."""
        return ForeignKeys()

    def release(self, position: Position) -> None:
        """Nothing is kept for us."""

    @contextmanager
    def chunks(self) -> Iterator[NoChunks]:
        """Nothing to read."""
        yield NoChunks()
