"""The address on which every process serves `/metrics` and `/health`: loopback, or what the environment names.

One variable for all processes, since containers and Prometheus on another host need it of all of them or of none.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Mapping
from functools import cache

from cdc.model.errors import UsageError

VARIABLE = "TAILORBIRD_METRICS_ADDRESS"
_LOOPBACK = "127.0.0.1"
_LOCAL_NAMES = frozenset({"", "localhost"})


def metrics_address(environ: Mapping[str, str]) -> str:
    """Return the IP address to listen on. Raises UsageError for a value that is not an IP address."""
    written = environ.get(VARIABLE, "").strip() or _LOOPBACK
    try:
        return str(ipaddress.ip_address(written))
    except ValueError as error:
        raise UsageError(
            f"{VARIABLE}: {written!r} is not an IP address, expected one of this machine, or 0.0.0.0 for all",
            f"unset {VARIABLE} to listen on {_LOOPBACK} only",
        ) from error


def address_to_ask(listening: str) -> str:
    """Return the address at which a program on this machine reaches the server, in the form of a URL."""
    address = ipaddress.ip_address(listening)
    if address.is_unspecified:
        return _LOOPBACK if address.version == 4 else "[::1]"
    return listening if address.version == 4 else f"[{listening}]"


def answers_for(host: str, listening: str) -> bool:
    """Return whether a request with this Host header is answered.

    A page of another site could read the metrics through a DNS name of its own that points here. Such a request names
    that DNS name. So only addresses and the machine's own names are answered; on loopback, only loopback's."""
    name = _without_port(host)
    if name in _LOCAL_NAMES:
        return True
    try:
        address = ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return not _is_loopback(listening) and name in _own_names()
    return address.is_loopback or not _is_loopback(listening)


def _is_loopback(listening: str) -> bool:
    return ipaddress.ip_address(listening).is_loopback


@cache
def _own_names() -> frozenset[str]:
    return frozenset({socket.gethostname().lower(), socket.getfqdn().lower()})


def _without_port(host: str) -> str:
    """Return the name in a Host header, without its port."""
    name, colon, port = host.strip().lower().rpartition(":")
    return name if colon and port.isdigit() else host.strip().lower()
