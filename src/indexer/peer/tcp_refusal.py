"""Check whether servers refuse connections, before a client tries for a long time."""

from __future__ import annotations

import socket


def refused(addresses: str, port: int, timeout: float) -> bool:
    """Return whether every server of a comma-separated list refuses a connection. `port` is for those without one.

    False if a server accepts it, or fails in another way, which may pass. A server is asked for at most `timeout`
    seconds."""
    for address in addresses.partition("/")[0].split(","):
        host, _, own = address.strip().partition(":")
        try:
            socket.create_connection((host, int(own or port)), timeout).close()
        except ConnectionRefusedError:
            continue
        except OSError:
            return False
        return False
    return True
