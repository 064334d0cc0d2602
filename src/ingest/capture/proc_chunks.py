"""Read chunks of tables while the log is followed, with one thread and one connection per range of a table."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from typing import Protocol

from cdc.model.errors import Retriable, Skippable, TableChanged, TailorbirdError
from cdc.model.schema import TableId
from ingest.records.chunk_requests import PASS, Chunk, ChunkRequest

TIMEOUT = 5.0  # seconds within which the log should show the change of a table that a read has noticed
_PAUSE = 0.2  # seconds between two attempts
RETRY = 1.0  # seconds until the next attempt after a replica could not be read; the pause doubles each time
LONGEST = 60.0  # seconds; the longest such pause


class TableReading(Protocol):
    """Reads chunks of one table over its own connection."""

    def read(self, request: ChunkRequest) -> Chunk:
        """Read the requested chunk. Blocks until the server has answered. Raises Retriable while it is unavailable."""


Opened = Callable[[], AbstractContextManager[TableReading]]


class ChunkThreads:
    """Chunk reader with one thread per range of a table; implements `chunk_requests.ChunkReader`.

    `opened` opens a connection for a thread. `apart`: tables are read from another server than the log. If that server
    is unavailable, late or unsuitable, the log is still read: `ready` returns the reason as a chunk that `waits`, once
    until it changes, and the chunk is tried again after a growing pause.
    """

    def __init__(self, opened: Opened, *, apart: bool = False) -> None:
        self._opened, self._apart = opened, apart
        # by table (and whether rows are read by their keys) and range
        self._workers: dict[tuple[TableId, bool], dict[int, _Worker]] = {}
        self._done: queue.SimpleQueue[Chunk | BaseException] = queue.SimpleQueue()

    def request(self, request: ChunkRequest) -> None:
        """Start to read a chunk. Implements `ChunkReader`."""
        workers = self._workers.setdefault((request.schema.table_id, bool(request.keys)), {})
        if request.after is None:  # the table is read from its beginning: end the threads of all its ranges
            for former in workers.values():
                former.asked.put(None)
            workers.clear()
        worker = workers.get(request.part)
        if worker is None or worker.ended:
            worker = workers[request.part] = _Worker(self._opened, self._done, apart=self._apart)
        worker.asked.put(request)

    def ready(self) -> list[Chunk]:
        """Return the chunks that were read since the last call. Raises the error that ended a thread. Implements
        `ChunkReader`."""
        found: list[Chunk] = []
        while not self._done.empty():
            one = self._done.get()
            if isinstance(one, BaseException):
                raise one
            found.append(one)
        return found

    def close(self) -> None:
        """End the threads. A thread that waits for its server ends after the answer."""
        for workers in self._workers.values():
            for worker in workers.values():
                worker.asked.put(None)


class _Worker:
    """Reads the chunks of one range in order, until its end or until it is stopped."""

    def __init__(self, opened: Opened, done: queue.SimpleQueue[Chunk | BaseException], *, apart: bool) -> None:
        self._opened, self._done, self._apart = opened, done, apart
        self.asked: queue.SimpleQueue[ChunkRequest | None] = queue.SimpleQueue()
        self.ended = False
        self._reason, self._pause = "", RETRY
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
                            self._reason, self._pause = "", RETRY
                            self.ended = chunk.after is None
                            self._done.put(chunk)
                            if self.ended:
                                return
                            request = self.asked.get()
                except TableChanged as error:
                    # The log contains the change of the table. When the session reads it, it requests the chunk again
                    # or cancels it. If the session ended here, the next one would request the same chunk before it
                    # reaches the change.
                    deadline = deadline or time.monotonic() + TIMEOUT
                    if request is not None and request.where and time.monotonic() > deadline:
                        raise Skippable(error.message, "correct the condition") from error
                    if request is None or request.after == PASS or time.monotonic() > deadline:
                        raise
                    with suppress(queue.Empty):
                        request = self.asked.get(timeout=_PAUSE)
                except Skippable:
                    raise
                except TailorbirdError as error:
                    if not self._apart or request is None:
                        raise
                    request = self._waits(request, error)
        except Skippable as error:  # the other tables can still be read
            self.ended = True
            assert request is not None, "it was being read"
            failed = Chunk(request=request, images=[], after=None, last=None, high=request.position, failed=error)
            self._done.put(failed)
        except BaseException as error:  # noqa: BLE001  # raised again by `ready`, in the session's thread
            self.ended = True
            self._done.put(error)

    def _waits(self, request: ChunkRequest, error: TailorbirdError) -> ChunkRequest | None:
        """Report why a chunk cannot be read now. Return the request to try after a pause; None to end.

        Raises Retriable for a pass: only its own connection shows its moment, so the next session starts it again.
        """
        if request.after == PASS:
            raise Retriable(error.message, error.hint) from error
        if str(error) != self._reason:
            self._reason = str(error)
            self._done.put(Chunk(request=request, images=[], after=None, last=None, high=request.position, waits=error))
        pause, self._pause = self._pause, min(2 * self._pause, LONGEST)
        try:
            return self.asked.get(timeout=pause)
        except queue.Empty:
            return request
