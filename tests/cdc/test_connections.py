"""Limits of connections: which one is closed to make room, and that nobody is kept out by idle ones."""

from __future__ import annotations

import random
import socket

import pytest

from cdc.model.connections import ConnectionLimits, Connections
from cdc.process.tcp_bounded import BoundedListener


def connections(most: int, each: int) -> Connections[int]:
    return Connections(ConnectionLimits(most=most, idle_each=each))


def test_an_address_with_too_many_idle_connections_loses_its_oldest() -> None:
    """Another address loses nothing."""
    open_ones = connections(100, 3)
    assert open_ones.open(0, "b") is None
    assert [open_ones.open(number, "a") for number in range(1, 6)] == [None, None, None, 1, 2]
    assert len(open_ones) == 4


def test_a_full_server_closes_connections_without_a_request_first() -> None:
    """Then the one whose last request is the oldest. A busy one is never closed; if all are busy, the new one is."""
    open_ones = connections(3, 10)
    for number in range(3):
        open_ones.open(number, "a")
    open_ones.use(0)
    open_ones.use(1)
    assert open_ones.open(3, "a") == 2
    open_ones.occupy(3)
    open_ones.use(0)
    assert open_ones.open(4, "a") == 1
    open_ones.occupy(0)
    open_ones.occupy(4)
    assert open_ones.open(5, "b") == 5
    open_ones.use(4)
    assert open_ones.open(6, "b") == 4


def test_the_address_with_most_idle_connections_makes_room() -> None:
    open_ones = connections(4, 10)
    for number, address in enumerate("babb"):
        open_ones.open(number, address)
    assert open_ones.open(4, "c") == 0


@pytest.mark.parametrize("seed", range(5))
def test_limits_hold_in_any_history(seed: int) -> None:
    """Never more than the limits, and never is a busy connection closed."""
    chance, open_ones = random.Random(seed), connections(20, 5)
    busy, known = set[int](), set[int]()
    for number in range(2000):
        one = chance.choice(sorted(known)) if known and chance.random() < 0.6 else None
        if one is None:
            closed = open_ones.open(number, chance.choice("abcdef"))
            known.add(number)
            assert closed not in busy
            if closed is not None:
                known.discard(closed)
        elif (act := chance.randrange(3)) == 0:
            open_ones.close(one)
            known.discard(one)
            busy.discard(one)
        elif act == 1:
            open_ones.occupy(one)
            busy.add(one)
        else:
            open_ones.use(one)
            busy.discard(one)
        assert len(open_ones) == len(known) <= 20


def test_a_listener_counts_only_open_connections() -> None:
    """A closed connection makes room. An idle one is closed for a new one, and its client notices."""
    with BoundedListener("test", ("127.0.0.1", 0), ConnectionLimits(most=2, idle_each=2)) as listener:
        address = listener.getsockname()
        with socket.create_connection(address, 5) as first, socket.create_connection(address, 5) as second:
            one, _ = listener.accept()
            two, peer = listener.accept()
            listener.occupy(peer[:2])
            with socket.create_connection(address, 5):
                three, _ = listener.accept()
                assert first.recv(1) == b""
                three.close()
            second.sendall(b"x")
            assert two.recv(1) == b"x"
            with socket.create_connection(address, 5) as fourth:
                four, peer = listener.accept()
                listener.occupy(peer[:2])
                with socket.create_connection(address, 5):
                    one.close()
                    listener.setblocking(False)
                    with pytest.raises(BlockingIOError):
                        listener.accept()
                fourth.sendall(b"y")
                assert four.recv(1) == b"y"
            two.close()
            four.close()


def test_a_listener_spends_nothing_on_idle_connections_beyond_its_limits() -> None:
    """Of a queue of a hundred it returns five, the newest, in their order; the others are closed."""
    with BoundedListener("test", ("127.0.0.1", 0), ConnectionLimits(most=50, idle_each=5)) as listener:
        listener.setblocking(False)
        clients = [socket.create_connection(listener.getsockname(), 5) for _ in range(100)]
        accepted = [listener.accept()]
        while (one := listener.more()) is not None:
            accepted.append(one)
        assert [where for _, where in accepted] == [one.getsockname() for one in clients[-5:]]
        with pytest.raises(BlockingIOError):
            listener.accept()
        assert all(one.recv(1) == b"" for one in clients[:-5])
        clients.append(socket.create_connection(listener.getsockname(), 5))
        newest, _ = listener.accept()
        assert clients[95].recv(1) == b"", "the oldest of those that were returned makes room"
        for connection in (newest, *(other for other, _ in accepted), *clients):
            connection.close()


def test_a_closed_listener_closes_what_it_accepted() -> None:
    """A server that ends leaves no client waiting."""
    with BoundedListener("test", ("127.0.0.1", 0), ConnectionLimits(most=50, idle_each=50)) as listener:
        clients = [socket.create_connection(listener.getsockname(), 5) for _ in range(3)]
        first, _ = listener.accept()
    assert [one.recv(1) for one in clients[1:]] == [b"", b""]
    for one in (first, *clients):
        one.close()
