"""Ports for servers that a test starts."""

from __future__ import annotations

import contextlib
import socket

from tailorbird.devtools.stack.settings import Ports


def free_port() -> int:
    """Return a port of this machine without a listener."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port


def free_ports() -> dict[str, int]:
    """Return a free port for every listener of a stack. All are held at once, since one after another could repeat."""
    with contextlib.ExitStack() as held:
        probes = {name: held.enter_context(socket.create_server(("127.0.0.1", 0))) for name, _ in Ports().items()}
        return {name: probe.getsockname()[1] for name, probe in probes.items()}
