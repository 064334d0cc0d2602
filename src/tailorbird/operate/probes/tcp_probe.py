"""Check whether a loopback port is free, and whether a server accepts connections on it."""

from __future__ import annotations

import socket


def port_is_free(host: str, port: int) -> bool:
    """Return whether a server could listen on the port now. Closing connections of an earlier server are ignored."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
        return True


def port_answers(host: str, port: int) -> bool:
    """Return whether a connection is accepted within a second."""
    try:
        socket.create_connection((host, port), 1.0).close()
    except OSError:
        return False
    return True
