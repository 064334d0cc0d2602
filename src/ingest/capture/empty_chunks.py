"""Chunks of tables of which there is nothing to read beside the log: topics, what is received; pure."""

from __future__ import annotations

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
