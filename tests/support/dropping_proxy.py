"""A proxy between an agent and a gateway that drops traffic like a broken network: nothing arrives, nothing is
closed."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress


class DroppingProxy:
    """Forwards bytes from `address` to `to` (host:port); while it is `cut`, all bytes are lost."""

    def __init__(self, to: str) -> None:
        self._to = to
        self.cut = threading.Event()
        self._agent_server = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._agent_server.getsockname()[1]}"
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, name=f"proxy to {to}", daemon=True).start()

    def close(self) -> None:
        """Close the listener and all connections."""
        for one in (self._agent_server, *self._open):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _accept(self) -> None:
        host, _, port = self._to.rpartition(":")
        with suppress(OSError):  # it was closed
            while True:
                near = self._agent_server.accept()[0]
                if self.cut.is_set():
                    self._open.append(near)  # the target does not answer
                    continue
                try:
                    far = socket.create_connection((host, int(port)), 5)
                    far.settimeout(None)  # otherwise a connection that is silent for 5 s would be closed
                except OSError:
                    near.close()
                    continue
                self._open += [near, far]
                for one, other in ((near, far), (far, near)):
                    threading.Thread(target=self._pass, args=(one, other), daemon=True).start()

    def _pass(self, one: socket.socket, other: socket.socket) -> None:
        lost = False
        with suppress(OSError):
            while content := one.recv(65536):
                lost = lost or self.cut.is_set()
                if not lost:  # a connection that lost bytes can not continue: its stream would be misread
                    other.sendall(content)
        if not lost:
            for ended in (one, other):
                with suppress(OSError):
                    ended.close()
