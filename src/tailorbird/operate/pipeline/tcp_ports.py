"""Reserve ports of this machine for processes that have not started yet."""

from __future__ import annotations

import os
import socket
import weakref


class ReservedPorts:
    """Ports that no other process gets until `close`, or until this object is garbage.

    Each is held by a socket that is bound, but does not listen. So the operating system gives the port to no other
    program that asks for any port, and to no outgoing connection. A process of ours can listen on it, because both
    sockets set SO_REUSEADDR. As long as none does, connections are refused."""

    def __init__(self) -> None:
        self._held: list[int] = []
        weakref.finalize(self, _close, self._held)

    def reserve(self) -> int:
        """Return a free port of 127.0.0.1, and hold it. Raises OSError if there is none."""
        with socket.socket() as one:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            one.bind(("127.0.0.1", 0))
            port: int = one.getsockname()[1]
            self._held.append(one.detach())
        return port

    def close(self) -> None:
        """Release all ports."""
        _close(self._held)


def _close(held: list[int]) -> None:
    while held:
        os.close(held.pop())
