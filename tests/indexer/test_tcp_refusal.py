"""Lists of servers that refuse connections, as ZooKeeper's clients write them."""

from __future__ import annotations

import socket

from indexer.peer.tcp_refusal import refused
from tests.support.ports import free_port


def test_a_list_of_servers_is_asked() -> None:
    """One server that accepts is enough. A folder of ZooKeeper may follow."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        port = server.getsockname()[1]
        assert not refused(f"127.0.0.1:{port}/folder", 2181, 1)
        assert not refused(f"127.0.0.1:{free_port()},127.0.0.1:{port}", 2181, 1)
    assert refused(f"127.0.0.1:{port}/folder", 2181, 1)
    assert refused(f"127.0.0.1:{free_port()}, 127.0.0.1", port, 1)


def test_addresses_of_ipv6_are_read() -> None:
    """On a machine without IPv6 the answer is False: the error may pass."""
    assert isinstance(refused(f"[::1]:{free_port()},[::1]", free_port(), 1), bool)
