"""A listening socket with bounded connections, for every server that Tailorbird opens (gRPC has limits of its own).

The bound is at the socket, so that it also holds for clients that never finish a TLS handshake.
"""

from __future__ import annotations

import contextlib
import select
import socket
import threading
from asyncio.sslproto import SSLProtocol
from collections import OrderedDict
from collections.abc import Callable

from prometheus_client import Counter

from cdc.model.connections import ConnectionLimits, Connections
from cdc.process.proc_open_files import allow_open_files

CLOSED = Counter(
    "tailorbird_closed_connections", "Idle or new connections that a server closed because of its limits", ["server"]
)
# connections in the queue of the operating system; beyond it, a client tries again only after a second
_BACKLOG = 4096
ACCEPTED_AT_ONCE = _BACKLOG  # asyncio's `backlog`: it must take all connections that `accept` has taken from the queue
# asyncio allocates a buffer of this size per TLS connection before the handshake; its default is 256 KiB
SSLProtocol.max_size = 32 * 1024
Peer = tuple[str, int]  # address and port of a client, which are unique per server


class BoundedListener(socket.socket):
    """A listening TCP socket whose `accept` closes idle connections beyond the limits. Thread-safe.

    `accept` returns sockets that report their own end. Only one thread may call it. Raises OSError if it cannot
    listen."""

    def __init__(self, server: str, address: Peer, limits: ConnectionLimits) -> None:
        family, kind, number, _, where = socket.getaddrinfo(*address, type=socket.SOCK_STREAM)[0]
        super().__init__(family, kind, number)
        self._server, self._lock = server, threading.Lock()
        self._connections, self._sockets = Connections[Peer](limits), dict[Peer, socket.socket]()
        self._waiting = OrderedDict[Peer, tuple[socket.socket, tuple[str, int]]]()  # accepted, but not returned yet
        self._poll = select.poll()
        self.limits = limits
        allow_open_files()
        try:
            self.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self.bind(where)
            self.listen()
            self._poll.register(self, select.POLLIN)
        except OSError:
            self.close()
            raise

    def listen(self, backlog: int = _BACKLOG) -> None:
        """Listen. The queue of the operating system is long also if asyncio wants a short one."""
        super().listen(max(backlog, _BACKLOG))

    def accept(self) -> tuple[socket.socket, tuple[str, int]]:
        """Return the next connection and its client. Idle connections may be closed to make room.

        All clients in the queue of the operating system are accepted first. Of a thousand idle ones, those beyond the
        limits are closed before a thread, a task or a TLS buffer is spent on them, so the last one waits briefly."""
        while not self._waiting:
            self._take(*super().accept())
            for _ in range(_BACKLOG):
                if not self._poll.poll(0):
                    break
                try:
                    self._take(*super().accept())
                except OSError:  # the next call raises it again, after the connections that were accepted
                    break
        return self._waiting.popitem(last=False)[1]

    def more(self) -> tuple[socket.socket, tuple[str, int]] | None:
        """Return the next connection that was accepted with an earlier one; None if there is none.

        For servers that wait for the listening socket to be readable: for these connections it is not."""
        return self._waiting.popitem(last=False)[1] if self._waiting else None

    def _take(self, plain: socket.socket, where: tuple[str, int]) -> None:
        peer: Peer = where[:2]
        one = _Reporting(plain, lambda: self._ended(peer))
        # a client whose machine has disappeared never closes its connection
        one.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        with self._lock:
            closed = self._connections.open(peer, peer[0])
            self._sockets[peer] = one
            loser = None if closed is None else self._sockets.pop(closed, None)
        self._waiting[peer] = one, where
        if loser is None or closed is None:
            return
        CLOSED.labels(self._server).inc()
        if self._waiting.pop(closed, None) is not None:
            loser.close()
            return
        with contextlib.suppress(OSError):
            loser.shutdown(socket.SHUT_RDWR)  # its reader then sees the end of the stream, and closes it

    def close(self) -> None:
        """Close the socket, and the connections that `accept` has not returned."""
        for one, _ in list(self._waiting.values()):
            one.close()
        self._waiting.clear()
        super().close()

    def use(self, peer: Peer) -> None:
        """Note that a client has sent a valid request and is idle now."""
        with self._lock:
            self._connections.use(peer)

    def occupy(self, peer: Peer) -> None:
        """Note that the server works for a client: its connection is not closed until `use`."""
        with self._lock:
            self._connections.occupy(peer)

    def _ended(self, peer: Peer) -> None:
        with self._lock:
            self._connections.close(peer)
            self._sockets.pop(peer, None)


class _Reporting(socket.socket):
    """A socket that calls a function when it is closed."""

    def __init__(self, plain: socket.socket, closed: Callable[[], None]) -> None:
        timeout = plain.gettimeout()
        super().__init__(plain.family, plain.type, plain.proto, fileno=plain.detach())
        self.settimeout(timeout)
        self._report = closed

    def close(self) -> None:
        """Close the socket, and report it once."""
        report, self._report = self._report, _nothing
        report()
        super().close()


def _nothing() -> None:
    pass
