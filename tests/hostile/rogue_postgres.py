"""A server that speaks PostgreSQL's protocol only to obtain the password of a client."""

from __future__ import annotations

import multiprocessing
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection

_SSL_REQUEST, _GSS_REQUEST = 80877103, 80877104


@contextmanager
def rogue_postgres() -> Iterator[tuple[int, Callable[[], bytes]]]:
    """Run an impostor without TLS that asks one client for its password in clear text.

    Yields its port and a function that returns everything that the client has sent, once it has left. The impostor is
    a process of its own, because libpq stops all threads of Python while it connects.
    """
    listening = socket.create_server(("0.0.0.0", 0))
    near, far = multiprocessing.get_context("fork").Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(target=_listen, args=(listening, far), daemon=True)
    process.start()
    try:
        yield listening.getsockname()[1], near.recv_bytes
    finally:
        process.kill()
        process.join()
        listening.close()


def _listen(listening: socket.socket, heard: Connection) -> None:
    found = b""
    while not found:
        connection, _ = listening.accept()
        with connection:
            found = _log_in(connection)
    heard.send_bytes(found)


def _log_in(connection: socket.socket) -> bytes:
    """Return everything that the client sends until it leaves; at least one byte."""
    connection.settimeout(20)
    found = b""
    while part := connection.recv(8):
        found += part
        size, code = struct.unpack("!ii", part)
        if code not in (_SSL_REQUEST, _GSS_REQUEST):
            found += connection.recv(size - 8)
            connection.sendall(b"R" + struct.pack("!ii", 8, 3))  # AuthenticationCleartextPassword
            return found + connection.recv(1000)
        connection.sendall(b"N")
    return found
