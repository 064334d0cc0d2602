"""Chunks of tables, read beside the log: one thread, with a connection of its own, a table."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from typing import Any, Protocol

from cdc.model.errors import Skippable, TableChanged
from ingest.records.snapshots import PASS, Chunk, ChunkRequest

TIMEOUT = 5.0  # seconds that the log's reader gets to come to a change of the table, before the session begins again
_PAUSE = 0.2  # seconds between two attempts


class TableReading(Protocol):
    """Reads chunks of one table over a connection."""

    def read(self, request: ChunkRequest) -> Chunk:
        """The chunk that is asked for; takes as long as the server does."""


Opened = Callable[[], AbstractContextManager[TableReading]]


class ChunkThreads:
    """Implements `snapshots.ChunkReader` over connections that `opened` makes; `close` ends its threads."""

    def __init__(self, opened: Opened) -> None:
        self._opened = opened
        self._workers: dict[Any, _Worker] = {}
        self._done: queue.SimpleQueue[Chunk | BaseException] = queue.SimpleQueue()

    def request(self, request: ChunkRequest) -> None:
        """See `snapshots.ChunkReader`."""
        table: Any = request.schema.table_id
        if request.keys:
            table = (table, "keys")
        worker = self._workers.get(table)
        if worker is not None and request.after is None:
            worker.asked.put(None)
        if worker is None or worker.ended or request.after is None:
            worker = self._workers[table] = _Worker(self._opened, self._done)
        worker.asked.put(request)

    def ready(self) -> list[Chunk]:
        """See `snapshots.ChunkReader`."""
        found: list[Chunk] = []
        while not self._done.empty():
            one = self._done.get()
            if isinstance(one, BaseException):
                raise one
            found.append(one)
        return found

    def close(self) -> None:
        """End the threads; one that waits for its server ends when that answers."""
        for worker in self._workers.values():
            worker.asked.put(None)


class _Worker:
    """Reads one table's chunks, one after the other, until it is at its end or asked to end."""

    def __init__(self, opened: Opened, done: queue.SimpleQueue[Chunk | BaseException]) -> None:
        self._opened, self._done = opened, done
        self.asked: queue.SimpleQueue[ChunkRequest | None] = queue.SimpleQueue()
        self.ended = False
        threading.Thread(target=self._run, name="snapshot", daemon=True).start()

    def _run(self) -> None:
        request: ChunkRequest | None = None
        try:
            request = self.asked.get()
            deadline: float | None = None
            while request is not None:
                try:
                    with self._opened() as table:
                        while request is not None:
                            chunk = table.read(request)
                            deadline = None
                            self.ended = chunk.after is None
                            self._done.put(chunk)
                            if self.ended:
                                return
                            request = self.asked.get()
                except TableChanged:
                    # The log tells the change, and then asks for the table again or for no more of it. A session that
                    # ended here would never come so far: it would ask for the same chunk again at its start.
                    deadline = deadline or time.monotonic() + TIMEOUT
                    if request is None or request.after == PASS or time.monotonic() > deadline:
                        raise
                    with suppress(queue.Empty):
                        request = self.asked.get(timeout=_PAUSE)
        except Skippable as error:  # of this table alone
            self.ended = True
            assert request is not None, "it was being read"
            failed = Chunk(request=request, images=[], after=None, last=None, high=request.position, failed=error)
            self._done.put(failed)
        except BaseException as error:  # noqa: BLE001  # raised again by `ready`, in the session's own thread
            self.ended = True
            self._done.put(error)
