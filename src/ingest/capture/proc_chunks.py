"""Read chunks of tables while the log is followed, with one thread and one connection per range of a table.

A thread whose range is read may read another one next, over the same connection: with thousands of small tables,
opening connections would take longer than reading.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from typing import Any, Protocol

from cdc.model.errors import Retriable, Skippable, TableChanged, TailorbirdError
from cdc.model.schema import TableId
from ingest.records.chunk_requests import PASS, Chunk, ChunkRequest

TIMEOUT = 5.0  # seconds within which the log should show the change of a table that a read has noticed
_PAUSE = 0.2  # seconds between two attempts
RETRY = 1.0  # seconds until the next attempt after a replica could not be read; the pause doubles each time
LONGEST = 60.0  # seconds; the longest such pause
_LINGERS = 5.0  # seconds for which a thread waits for another table


class TableReading(Protocol):
    """Reads chunks of one table over its own connection."""

    def read(self, request: ChunkRequest) -> Chunk:
        """Read the requested chunk. Blocks until the server has answered. Raises Retriable while it is unavailable."""


Opened = Callable[[], AbstractContextManager[TableReading]]


class ChunkThreads:
    """Chunk reader with one thread per range of a table; implements `chunk_requests.ChunkReader`.

    `opened` opens a connection for a thread. `apart`: tables are read from another server than the log. If that server
    is unavailable, late or unsuitable, the log is still read: `ready` returns the reason as a chunk that `waits`, once
    until it changes, and the chunk is tried again after a growing pause. `reusable` returns whether a connection whose
    table is read can be used for another table.
    """

    def __init__(
        self, opened: Opened, *, apart: bool = False, reusable: Callable[[Any], bool] = lambda reading: False
    ) -> None:
        self._opened, self._apart, self._reusable = opened, apart, reusable
        # by table (and whether rows are read by their keys) and range; a worker may read another range since
        self._workers: dict[tuple[TableId, bool], dict[int, _Worker]] = {}
        self._resting = _Resting()
        self._done: queue.SimpleQueue[Chunk | BaseException] = queue.SimpleQueue()

    def request(self, request: ChunkRequest) -> None:
        """Start to read a chunk. Implements `ChunkReader`."""
        name = (request.schema.table_id, bool(request.keys))
        workers = self._workers.setdefault(name, {})
        if request.after is None:  # the table is read from its beginning: end the threads of all its ranges
            for part, former in workers.items():
                if former.reads == (name, part) and not former.ended:
                    former.asked.put(None)
            workers.clear()
        worker = workers.get(request.part)
        if worker is None or worker.ended or worker.reads != (name, request.part):
            worker = self._resting.take()
            if worker is None:
                worker = _Worker(self._opened, self._done, self._resting, self._reusable, apart=self._apart)
            worker.reads, worker.ended = (name, request.part), False
            workers[request.part] = worker
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


class _Resting:
    """The workers that wait for another table."""

    def __init__(self) -> None:
        self._lock, self._workers = threading.Lock(), list[_Worker]()

    def add(self, worker: _Worker) -> None:
        """Add a worker whose table is read."""
        with self._lock:
            self._workers.append(worker)

    def take(self) -> _Worker | None:
        """Return a worker, which gets a request; None if there is none."""
        with self._lock:
            return self._workers.pop() if self._workers else None

    def leave(self, worker: _Worker) -> bool:
        """Remove a worker that ends. Returns False if it was taken, and so must not end."""
        with self._lock:
            if worker not in self._workers:
                return False
            self._workers.remove(worker)
            return True


class _Worker:
    """Reads the chunks of a range in order, until its end or until it is stopped, then maybe those of another range.

    `reads` identifies the range."""

    def __init__(
        self,
        opened: Opened,
        done: queue.SimpleQueue[Chunk | BaseException],
        resting: _Resting,
        reusable: Callable[[Any], bool],
        *,
        apart: bool,
    ) -> None:
        self._opened, self._done, self._apart = opened, done, apart
        self._resting, self._reusable = resting, reusable
        self.reads: Any = None
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
                            if chunk.after is not None:
                                self._done.put(chunk)
                                request = self.asked.get()
                                continue
                            self.ended = True
                            rests = self._reusable(table)
                            if rests:
                                # before the chunk, because its receiver may request another table at once
                                self._resting.add(self)
                            self._done.put(chunk)
                            if not rests:
                                return
                            request = self._next()
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

    def _next(self) -> ChunkRequest | None:
        """Return the first request of another table; None if none comes in time."""
        while True:
            try:
                request = self.asked.get(timeout=_LINGERS)
            except queue.Empty:
                request = None
            if request is not None or self._resting.leave(self):
                return request

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
