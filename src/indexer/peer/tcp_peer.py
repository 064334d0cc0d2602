"""Accept connections of region servers, and answer each batch of edits after it has been processed."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import structlog

from cdc.model.errors import Fatal, Retriable, TailorbirdError
from indexer.peer.peer import CallRefused, Connected, Edits, EditsReceived, PeerConnection
from indexer.peer.wire import WireError

# One region server ships up to ten batches at a time, one per region; more would only wait for Solr.
_WORKERS = 4
_RECEIVE = 1 << 20
# Bytes on the wire of all current batches; HBase creates none larger than replication.source.size.capacity (64 MB).
_LARGEST_BACKLOG = 128 << 20

log = structlog.get_logger()
Handler = Callable[[Edits], None]


class _Budget:
    """Limits the bytes of the batches in progress. A batch that is larger than the limit is processed alone."""

    def __init__(self, size: int) -> None:
        self._size, self._taken = size, 0
        self._changed = threading.Condition()

    def take(self, size: int) -> None:
        """Wait until `size` bytes are free, and reserve them."""
        with self._changed:
            self._changed.wait_for(lambda: self._taken == 0 or self._taken + size <= self._size)
            self._taken += size

    def give_back(self, size: int) -> None:
        """Release `size` reserved bytes."""
        with self._changed:
            self._taken -= size
            self._changed.notify_all()


class PeerServer:
    """Serves connections of region servers, one thread each. A few worker threads process the batches.

    `handle` returns when the batch is stored elsewhere, and the batch is then acknowledged. If `handle` raises
    Retriable, HBase keeps the batch and sends it again. Fatal does the same and is passed once to `failed`, which
    ends the process.

    A connection is not read while its batches wait for a worker, or while the batches in progress exceed
    `_LARGEST_BACKLOG` bytes. So memory is bounded by that limit and one batch per connection."""

    def __init__(
        self, handle: Handler, failed: Callable[[TailorbirdError], None], *, address: str = "127.0.0.1"
    ) -> None:
        self._handle, self._failed = handle, failed
        self._listener = socket.create_server((address, 0), backlog=64)
        self._workers = ThreadPoolExecutor(_WORKERS, thread_name_prefix="batch")
        self._connections: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._closing = False
        self._budget = _Budget(_LARGEST_BACKLOG)
        threading.Thread(target=self._accept, name="accept", daemon=True).start()

    @property
    def port(self) -> int:
        """Return the TCP port that the server listens on."""
        port: int = self._listener.getsockname()[1]
        return port

    def close(self, *, wait: bool) -> None:
        """Stop accepting and answering. With `wait`, return after the batches in progress.

        HBase sends unanswered batches to another process."""
        self._closing = True
        self._listener.close()
        self._workers.shutdown(wait=wait, cancel_futures=True)
        with self._lock:
            for connection in self._connections:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        while not self._closing:
            try:
                connection, peer = self._listener.accept()
            except OSError:
                return
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                self._connections.add(connection)
            threading.Thread(
                target=self._serve, args=(connection, f"{peer[0]}:{peer[1]}"), name="connection", daemon=True
            ).start()

    def _serve(self, connection: socket.socket, peer: str) -> None:
        protocol, free, writing = PeerConnection(), threading.Semaphore(_WORKERS), threading.Lock()

        def send(reply: bytes) -> None:
            try:
                with writing:
                    connection.sendall(reply)
            except OSError as error:
                # The batch is stored, but HBase does not know. HBase sends it again, and the fence makes the
                # repeat harmless.
                log.info("answer_lost", peer=peer, reason=str(error))

        def work(batch: EditsReceived) -> None:
            try:
                send(self._answer(protocol, batch))
            finally:
                free.release()
                self._budget.give_back(batch.edits.size)

        try:
            while data := connection.recv(_RECEIVE):
                for event in protocol.receive(data):
                    match event:
                        case Connected(user=user):
                            log.info("region_server_connected", peer=peer, user=user)
                        case CallRefused(method=method, reply=reply):
                            log.warning("unknown_call", peer=peer, method=method)
                            send(reply)
                        case EditsReceived():
                            free.acquire()
                            self._budget.take(event.edits.size)
                            self._workers.submit(work, event)
        except WireError as error:
            log.warning("connection_refused", peer=peer, reason=str(error))
        except (OSError, RuntimeError) as error:
            # RuntimeError: the workers are shut down because this process ends
            log.info("connection_lost", peer=peer, reason=str(error))
        finally:
            with self._lock:
                self._connections.discard(connection)
            connection.close()

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
