"""Check whether servers refuse connections, before a client tries for a long time."""

from __future__ import annotations

import socket
from urllib.parse import urlsplit


def refused(addresses: str, port: int, timeout: float) -> bool:
    """Return whether every server of a comma-separated list refuses a connection. `port` is for those without one.

    False if a server accepts it, or fails in another way, which may pass. A server is asked for at most `timeout`
    seconds."""
    for address in addresses.partition("/")[0].split(","):
        parts = urlsplit(f"//{address.strip()}")
        try:
            socket.create_connection((parts.hostname or "", parts.port or port), timeout).close()
        except ConnectionRefusedError:
            continue
        except OSError:
            return False
        return False
    return True
