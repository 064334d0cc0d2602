"""A listening socket with bounded connections, for every server that Tailorbird opens (gRPC has limits of its own).

The bound is at the socket, so that it also holds for clients that never finish a TLS handshake.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from asyncio.sslproto import SSLProtocol
from collections.abc import Callable

from prometheus_client import Counter

from cdc.model.connections import ConnectionLimits, Connections
from cdc.process.proc_open_files import allow_open_files

CLOSED = Counter(
    "tailorbird_closed_connections", "Idle or new connections that a server closed because of its limits", ["server"]
)
ACCEPTED_AT_ONCE = 16  # asyncio's `backlog`: so that it closes connections before it accepts more
_BACKLOG = 1024
# asyncio allocates a buffer of this size per TLS connection before the handshake; its default is 256 KiB
SSLProtocol.max_size = 32 * 1024
Peer = tuple[str, int]  # address and port of a client, which are unique per server


class BoundedListener(socket.socket):
    """A listening TCP socket whose `accept` closes idle connections beyond the limits. Thread-safe.

    `accept` returns sockets that report their own end. It raises ConnectionAbortedError if it refuses a connection.
    Raises OSError if it cannot listen."""

    def __init__(self, server: str, address: Peer, limits: ConnectionLimits) -> None:
        family, kind, number, _, where = socket.getaddrinfo(*address, type=socket.SOCK_STREAM)[0]
        super().__init__(family, kind, number)
        self._server, self._lock = server, threading.Lock()
        self._connections, self._sockets = Connections[Peer](limits), dict[Peer, socket.socket]()
        self.limits = limits
        allow_open_files()
        try:
            self.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self.bind(where)
            self.listen()
        except OSError:
            self.close()
            raise

    def listen(self, backlog: int = _BACKLOG) -> None:
        """Listen. The queue of the operating system is long also if asyncio wants a short one."""
        super().listen(max(backlog, _BACKLOG))

    def accept(self) -> tuple[socket.socket, tuple[str, int]]:
        """Return the next connection and its client. An idle connection may be closed to make room.

        Raises ConnectionAbortedError if the new one is closed because all others are busy."""
        plain, where = super().accept()
        peer: Peer = where[:2]
        one = _Reporting(plain, lambda: self._ended(peer))
        # a client whose machine has disappeared never closes its connection
        one.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        with self._lock:
            closed = self._connections.open(peer, peer[0])
            self._sockets[peer] = one
            loser = None if closed is None else self._sockets.pop(closed, None)
        if loser is not None:
            CLOSED.labels(self._server).inc()
            with contextlib.suppress(OSError):
                loser.shutdown(socket.SHUT_RDWR)  # its reader then sees the end of the stream, and closes it
        if loser is one:
            one.close()
            raise ConnectionAbortedError(f"{self.limits.most} connections are busy")
        return one, where

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
