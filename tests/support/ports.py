"""Ports for servers that a test starts."""

from __future__ import annotations

import random
import socket

from tailorbird.devtools.stack.settings import Ports

# Linux gives ports up to 60999 to outgoing connections: such a port may be in use again before the server listens on it
_PORTS = range(61_000, 65_500)
_given: set[int] = set()


def free_port() -> int:
    """Return a port of this machine without a listener, another one at each call."""
    while True:
        port = random.choice(_PORTS)
        if port in _given:
            continue
        _given.add(port)
        try:
            with socket.create_server(("127.0.0.1", port)):
                return port
        except OSError:
            continue


def free_ports() -> dict[str, int]:
    """Return a free port for every listener of a stack."""
    return {name: free_port() for name, _ in Ports().items()}
