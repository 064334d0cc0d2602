"""Ports for servers that a test starts."""

from __future__ import annotations

import contextlib
import socket

from tailorbird.devtools.stack.settings import Ports


def free_port() -> int:
    """A port of this machine that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port


def free_ports() -> dict[str, int]:
    """A free port for every listener of a stack. One behind another could be given twice, so all are held at once."""
    with contextlib.ExitStack() as held:
        probes = {name: held.enter_context(socket.create_server(("127.0.0.1", 0))) for name, _ in Ports().items()}
        return {name: probe.getsockname()[1] for name, probe in probes.items()}
