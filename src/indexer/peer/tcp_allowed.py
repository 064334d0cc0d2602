"""Decide which clients may send edits: the region servers of the configured HBase, or the topology's list."""

from __future__ import annotations

import ipaddress
import socket
import threading
import time
from collections.abc import Callable, Iterable

import structlog

from cdc.model.errors import Retriable

_REFRESH = 5.0  # seconds between two reads of the list
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

log = structlog.get_logger()


class AllowedClients:
    """The allowed addresses. `hosts` returns host names, addresses and networks (`10.0.0.0/8`). Thread-safe.

    `hosts` is called again if an unknown client connects, at most every five seconds, because region servers come and
    go. It may raise Retriable; the earlier list is then still valid. `clock` returns seconds."""

    def __init__(self, hosts: Callable[[], Iterable[str]], clock: Callable[[], float] = time.monotonic) -> None:
        self._hosts, self._clock, self._lock = hosts, clock, threading.Lock()
        self._networks, self._own = list[Network](), False
        self._read_at = float("-inf")

    def allow(self, address: str, *, own: str) -> bool:
        """Return whether a client at an address is allowed. `own` is the address of this machine that it reached."""
        if self._listed(address, own):
            return True
        with self._lock:
            now = self._clock()
            if now - self._read_at < _REFRESH:
                return False
            self._read_at = now
        self._read()  # without the lock, because name servers may be slow
        return self._listed(address, own)

    def _listed(self, address: str, own: str) -> bool:
        client = ipaddress.ip_address(address.partition("%")[0])
        if isinstance(client, ipaddress.IPv6Address) and client.ipv4_mapped is not None:
            client = client.ipv4_mapped
        here = client.is_loopback or address == own
        return (here and self._own) or any(client in network for network in self._networks)

    def _read(self) -> None:
        try:
            hosts = list(self._hosts())
        except Retriable as error:
            log.warning("region_servers_unknown", reason=str(error))
            return
        networks = [network for host in hosts for network in _networks(host)]
        self._networks, self._own = networks, any(_is_own(network) for network in networks)


def _networks(host: str) -> list[Network]:
    try:
        return [ipaddress.ip_network(host, strict=False)]
    except ValueError:
        pass
    try:
        found = {str(entry[4][0]).partition("%")[0] for entry in socket.getaddrinfo(host, None)}
    except OSError as error:
        log.warning("host_unknown", host=host, reason=str(error))
        return []
    return [ipaddress.ip_network(address) for address in sorted(found)]


def _is_own(network: Network) -> bool:
    """Return whether a network is a single address of this machine."""
    if network.num_addresses > 1:
        return network.is_loopback
    address = network.network_address
    if address.is_loopback:
        return True
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((str(address), 0))
        except OSError:
            return False
    return True
