"""Accept connections of region servers, and answer each batch of edits after it has been processed."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import structlog

from cdc.model.connections import ConnectionLimits
from cdc.model.errors import Fatal, Retriable, TailorbirdError
from cdc.process.tcp_bounded import BoundedListener
from indexer.peer.peer import CallRefused, Connected, Edits, EditsReceived, PeerConnection
from indexer.peer.tcp_allowed import AllowedClients
from indexer.peer.tcp_budget import ByteBudget, HeldBytes
from indexer.peer.wire import WireError

# One region server ships up to ten batches at a time, one per region; more would only wait for Solr.
_WORKERS = 4
_RECEIVE = 128 << 10
# Bytes on the wire of all incomplete frames and unfinished batches. HBase creates no batch that is larger than
# replication.source.size.capacity (64 MB).
LARGEST_BACKLOG = 128 << 20
# A region server opens few connections, and opens a closed one again. Each has a thread and `_RECEIVE` bytes.
LIMITS = ConnectionLimits(most=256, idle_each=128, idle=10.0)
# HBase waits 60 s for an answer, so a frame that takes longer is of no use to it.
_FRAME_SECONDS, _IDLE_SECONDS = 120.0, 600.0
_REPORTED = 1000  # refused addresses that are logged only once

log = structlog.get_logger()
Handler = Callable[[Edits], None]


class PeerServer:
    """Serves connections of region servers, one thread each. A few worker threads process the batches.

    `handle` returns when the batch is stored elsewhere, and the batch is then acknowledged. If `handle` raises
    Retriable, HBase keeps the batch and sends it again. Fatal does the same and is passed once to `failed`, which
    ends the process.

    A connection is not read while its batches wait for a worker, or while the incomplete frames and unfinished batches
    of all connections exceed `LARGEST_BACKLOG` bytes. Only clients that `clients` allows are served."""

    def __init__(
        self,
        handle: Handler,
        failed: Callable[[TailorbirdError], None],
        *,
        address: str = "127.0.0.1",
        clients: AllowedClients | None = None,
    ) -> None:
        self._handle, self._failed, self._clients = handle, failed, clients or AllowedClients(lambda: ["127.0.0.1"])
        self._listener = BoundedListener("replication", (address, 0), LIMITS)
        self._workers = ThreadPoolExecutor(_WORKERS, thread_name_prefix="batch")
        self._connections: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._closing = False
        self._budget = ByteBudget(LARGEST_BACKLOG)
        self._refused = set[str]()
        threading.Thread(target=self._accept, name="accept", daemon=True).start()

    @property
    def port(self) -> int:
        """Return the TCP port that the server listens on."""
        port: int = self._listener.getsockname()[1]
        return port

    @property
    def bytes_held(self) -> int:
        """Return the bytes of all incomplete frames and unfinished batches."""
        return self._budget.taken

    def close(self, *, wait: bool) -> None:
        """Stop accepting and answering. With `wait`, return after the batches in progress.

        HBase sends unanswered batches to another process."""
        self._closing = True
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
        self._listener.close()
        self._workers.shutdown(wait=wait, cancel_futures=True)
        with self._lock:
            for connection in self._connections:
                _shut(connection)

    def _accept(self) -> None:
        while not self._closing:
            try:
                connection, peer = self._listener.accept()
            except OSError as error:
                if self._closing:
                    return
                log.warning("not_accepted", reason=str(error))  # for example: too many open files
                time.sleep(1.0)
                continue
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                self._connections.add(connection)
            threading.Thread(target=self._serve, args=(connection, peer), name="connection", daemon=True).start()

    def _serve(self, connection: socket.socket, peer: tuple[str, int]) -> None:
        name = f"{peer[0]}:{peer[1]}"
        held = self._budget.enter(lambda: _shut(connection))
        try:
            if self._allowed(connection, peer[0]):
                self._read(connection, peer[:2], name, held)
        except WireError as error:
            log.warning("connection_refused", peer=name, reason=str(error))
        except (OSError, RuntimeError) as error:
            # RuntimeError: the workers are shut down because this process ends
            log.info("connection_lost", peer=name, reason=str(error))
        finally:
            self._budget.leave(held)
            with self._lock:
                self._connections.discard(connection)
            connection.close()

    def _allowed(self, connection: socket.socket, address: str) -> bool:
        if self._clients.allow(address, own=connection.getsockname()[0]):
            return True
        with self._lock:
            known = address in self._refused or len(self._refused) >= _REPORTED
            self._refused.add(address) if not known else None
        if not known:
            remedy = "if a region server uses this address, add it to `hbase.region_servers` of the topology"
            log.warning("client_refused", address=address, reason="not a region server", remedy=remedy)
        return False

    def _read(self, connection: socket.socket, peer: tuple[str, int], name: str, held: HeldBytes) -> None:
        protocol, free, writing = PeerConnection(), threading.Semaphore(_WORKERS), threading.Lock()
        unfinished = _Unfinished(self._listener, peer)

        def send(reply: bytes) -> None:
            try:
                with writing:
                    connection.sendall(reply)
            except OSError as error:
                # The batch is stored, but HBase does not know. HBase sends it again, and the fence makes the
                # repeat harmless.
                log.info("answer_lost", peer=name, reason=str(error))

        def work(batch: EditsReceived) -> None:
            try:
                send(self._answer(protocol, batch))
            finally:
                free.release()
                self._budget.give_back(batch.edits.size)
                unfinished.end()

        for data in self._received(connection, protocol, held, unfinished):
            events = protocol.receive(data)
            batches = [event for event in events if isinstance(event, EditsReceived)]
            self._budget.complete(held, protocol.incomplete, sum(batch.edits.size for batch in batches))
            for event in events:
                match event:
                    case Connected(user=user):
                        log.info("region_server_connected", peer=name, user=user)
                    case CallRefused(method=method, reply=reply):
                        log.warning("unknown_call", peer=name, method=method)
                        send(reply)
            self._submit(batches, free, work, unfinished)

    def _submit(
        self,
        batches: list[EditsReceived],
        free: threading.Semaphore,
        work: Callable[[EditsReceived], None],
        unfinished: _Unfinished,
    ) -> None:
        """Give batches to the workers. Waits while four of the connection's batches wait or are processed."""
        waiting = deque(batches)
        try:
            while waiting:
                free.acquire()
                unfinished.begin()
                self._workers.submit(work, waiting[0])
                waiting.popleft()
        finally:
            for batch in waiting:  # not submitted, because this process ends
                self._budget.give_back(batch.edits.size)

    def _received(
        self, connection: socket.socket, protocol: PeerConnection, held: HeldBytes, unfinished: _Unfinished
    ) -> Iterator[bytes]:
        """Yield the received bytes, counted in the budget. Raises OSError if the client is too slow."""
        while True:
            if protocol.incomplete and time.monotonic() - held.began > _FRAME_SECONDS:
                raise TimeoutError(f"a frame is not complete after {_FRAME_SECONDS:.0f} s")
            opened = protocol.opened
            connection.settimeout((_FRAME_SECONDS if protocol.incomplete else _IDLE_SECONDS) if opened else LIMITS.idle)
            self._budget.waits(held)
            data = connection.recv(_RECEIVE)
            if not data:
                return
            self._budget.take(held, len(data))
            yield data
            if protocol.opened and not opened:
                unfinished.settle()

    def _answer(self, protocol: PeerConnection, batch: EditsReceived) -> bytes:
        try:
            self._handle(batch.edits)
        except (Retriable, WireError) as error:
            log.warning("batch_sent_back", entries=len(batch.edits), reason=str(error))
            return protocol.refuse(batch.call_id, error.message)
        except Fatal as error:
            self._failed(error)
            return protocol.refuse(batch.call_id, error.message)
        except Exception as error:
            # A bug must neither acknowledge the batch nor leave HBase waiting: send it back and end.
            log.exception("batch_failed", entries=len(batch.edits))
            self._failed(Fatal(f"unexpected {type(error).__name__}: {error}", "please report it with the log above"))
            return protocol.refuse(batch.call_id, repr(error))
        return protocol.answer(batch.call_id)


class _Unfinished:
    """Batches of one connection that wait for a worker or are processed: without any, it is idle. Thread-safe."""

    def __init__(self, listener: BoundedListener, peer: tuple[str, int]) -> None:
        self._listener, self._peer = listener, peer
        self._lock, self._count = threading.Lock(), 0

    def begin(self) -> None:
        """Count a batch."""
        with self._lock:
            self._count += 1
            self._listener.occupy(self._peer)

    def end(self) -> None:
        """Note that a batch is finished."""
        with self._lock:
            self._count -= 1
        self.settle()

    def settle(self) -> None:
        """Mark the connection as idle if it has no batch."""
        with self._lock:
            if not self._count:
                self._listener.use(self._peer)


def _shut(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
