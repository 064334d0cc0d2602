"""The peer's server on a real socket: what is acknowledged, what is sent back, and what ends the process."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from cdc.model.connections import ConnectionLimits
from cdc.model.errors import Fatal, Retriable, TailorbirdError
from indexer.peer import tcp_peer, wire
from indexer.peer import wire_pb2 as pb
from indexer.peer.peer import CallRefused, Connected, Edits, PeerConnection
from indexer.peer.tcp_allowed import AllowedClients
from indexer.peer.tcp_peer import PeerServer
from indexer.peer.wire import PUT, Cell, WireError
from tests.support.waiting import wait_for


class RegionServer:
    """Ships batches like HBase and reads the answers."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), 10)
        self._frames = wire.Frames()
        header = pb.ConnectionHeader(service_name="AdminService")
        header.user_info.effective_user = "hbase"
        self._socket.sendall(wire.PREAMBLE + wire.frame(header.SerializeToString()))

    def ship(self, call_id: int, row: bytes, value: bytes = b"v") -> None:
        header = pb.RequestHeader(call_id=call_id, method_name="ReplicateWALEntry", request_param=True)
        request = pb.ReplicateWALEntryRequest()
        entry = request.entry.add(associated_cell_count=1)
        entry.key.encoded_region_name, entry.key.table_name = b"r", b"t:wide"
        entry.key.log_sequence_number, entry.key.write_time = 1, 1
        cells = wire.write_cells([Cell(row, b"d", b"q", 1, PUT, value)])
        self._socket.sendall(wire.frame(wire.delimited(header), wire.delimited(request), cells))

    def answer(self) -> tuple[int, str]:
        """Return the next answer's call id and its exception, "" for an acknowledgement."""
        while (received := self._frames.next()) is None:
            data = self._socket.recv(1 << 16)
            assert data, "the connection was closed"
            self._frames.feed(data)
        header, _ = wire.read_delimited(received, 0, pb.ResponseHeader)
        return header.call_id, header.exception.stack_trace

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def is_closed(self) -> bool:
        try:
            return self._socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def close(self) -> None:
        self._socket.close()


Serve = Callable[[Callable[[Edits], None]], RegionServer]


@pytest.fixture
def failures() -> list[TailorbirdError]:
    return []


@pytest.fixture
def serve(failures: list[TailorbirdError]) -> Iterator[Serve]:
    """Start a server with a handler and connect to it."""
    opened: list[tuple[PeerServer, RegionServer]] = []

    def start(handle: Callable[[Edits], None]) -> RegionServer:
        server = PeerServer(handle, failures.append)
        opened.append((server, RegionServer(server.port)))
        return opened[-1][1]

    yield start
    for server, client in opened:
        client.close()
        server.close(wait=True)


def test_a_batch_is_acknowledged_when_it_is_handled_and_not_before(serve: Serve) -> None:
    """HBase drops acknowledged batches, so the answer waits for the handler."""
    handled, release = list[bytes](), threading.Event()

    def handle(edits: Edits) -> None:
        assert release.wait(10)
        handled.extend(write.row for entry in edits.entries() for write in entry.writes)

    server = serve(handle)
    server.ship(1, b"a")
    server.ship(2, b"b")
    assert handled == []
    release.set()
    assert sorted([server.answer(), server.answer()]) == [(1, ""), (2, "")]
    assert sorted(handled) == [b"a", b"b"]


def test_an_unavailable_server_sends_the_batch_back(serve: Serve, failures: list[TailorbirdError]) -> None:
    """HBase keeps the batch and retries; the process and the connection continue."""
    answers = iter([Retriable("Solr is unavailable"), None])

    def handle(edits: Edits) -> None:
        if (error := next(answers)) is not None:
            raise error

    server = serve(handle)
    server.ship(1, b"a")
    assert server.answer() == (1, "Solr is unavailable")
    server.ship(2, b"a")
    assert server.answer() == (2, "")
    assert failures == []


@pytest.mark.parametrize("error", [Fatal("the field is of another type"), ZeroDivisionError("a bug")])
def test_what_must_not_go_on_is_sent_back_and_ends_the_process(
    serve: Serve, failures: list[TailorbirdError], error: Exception
) -> None:
    """Neither a fatal error nor a bug acknowledges anything, and the process ends."""

    def handle(edits: Edits) -> None:
        raise error

    server = serve(handle)
    server.ship(1, b"a")
    call_id, reason = server.answer()
    assert (call_id, bool(reason)) == (1, True)
    assert [type(failure) for failure in failures] == [Fatal]
    assert str(error) in str(failures[0])


def test_a_stranger_is_disconnected_and_hbase_served_on(serve: Serve) -> None:
    """A client with another protocol on the port harms no other connection."""
    handled: list[int] = []
    server = serve(lambda edits: handled.append(len(edits)))
    server.send(b"\xff\xff\xff\xff GET / HTTP/1.1\r\n\r\n")
    assert server.is_closed()
    other = serve(lambda edits: handled.append(len(edits)))
    other.ship(1, b"a")
    assert other.answer() == (1, "")
    assert handled == [1]


def test_a_client_that_is_no_region_server_is_disconnected() -> None:
    """The allow-list is read again when an unknown client connects, since region servers come and go."""
    hosts = ["192.0.2.1", "10.0.0.0/8"]
    now = [0.0]
    clients = AllowedClients(lambda: hosts, lambda: now[0])
    assert clients.allow("10.1.2.3", own="10.1.2.4")
    assert clients.allow("::ffff:10.1.2.3", own="10.1.2.4")
    assert not clients.allow("127.0.0.1", own="127.0.0.1")
    hosts.append("localhost")
    assert not clients.allow("127.0.0.1", own="127.0.0.1")  # not read again within five seconds
    now[0] = 6.0
    assert clients.allow("127.0.0.1", own="127.0.0.1")
    assert clients.allow("10.9.9.9", own="10.9.9.9")
    assert not clients.allow("192.0.2.9", own="10.9.9.9")
    server = PeerServer(lambda edits: None, lambda error: None, clients=AllowedClients(lambda: ["192.0.2.1"]))
    try:
        client = RegionServer(server.port)
        assert client.is_closed()
        client.close()
    finally:
        server.close(wait=True)


def test_an_unavailable_list_keeps_the_earlier_one() -> None:
    answers: Iterator[list[str] | Retriable] = iter([["10.0.0.1"], Retriable("ZooKeeper is unavailable")])
    now = [0.0]

    def hosts() -> list[str]:
        answer = next(answers)
        if isinstance(answer, Retriable):
            raise answer
        return answer

    clients = AllowedClients(hosts, lambda: now[0])
    assert clients.allow("10.0.0.1", own="10.0.0.9")
    now[0] = 9.0
    assert not clients.allow("10.0.0.2", own="10.0.0.9")
    assert clients.allow("10.0.0.1", own="10.0.0.9")


def test_half_frames_make_room_for_complete_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients that send the beginning of large frames and then nothing fill the budget of all connections."""
    monkeypatch.setattr(tcp_peer, "LARGEST_BACKLOG", 1 << 20)
    server = PeerServer(lambda edits: None, lambda error: None)
    try:
        silent = [RegionServer(server.port) for _ in range(4)]
        for one in silent:
            one.send((2 << 20).to_bytes(4, "big") + b"x" * (300 << 10))
        honest = RegionServer(server.port)
        begun = time.monotonic()
        for number in range(3):
            honest.ship(number, b"a" * 30_000)
            assert honest.answer() == (number, "")
        assert time.monotonic() - begun < 5
        assert server.bytes_held <= 1 << 20
        for one in (*silent, honest):
            one.close()
        wait_for(lambda: server.bytes_held == 0, "bytes of closed connections are counted", 10)
    finally:
        server.close(wait=True)


def test_a_frame_that_is_larger_than_the_budget_is_processed_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """And of several that are sent at the same time, each is processed in the end."""
    monkeypatch.setattr(tcp_peer, "LARGEST_BACKLOG", 1 << 16)
    server = PeerServer(lambda edits: None, lambda error: None)

    def deliver(number: int) -> None:
        for _ in range(20):  # HBase repeats a batch whose connection was closed
            client = RegionServer(server.port)
            try:
                client.ship(number, bytes([number]) * 200, value=b"v" * (1 << 20))
                assert client.answer() == (number, "")
                delivered.append(number)
                return
            except (OSError, AssertionError):
                continue
            finally:
                client.close()

    delivered = list[int]()
    try:
        threads = [threading.Thread(target=deliver, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert sorted(delivered) == [0, 1, 2, 3]
    finally:
        server.close(wait=True)


def test_long_names_are_cut() -> None:
    """A method's name of 5 MB would otherwise be logged and sent back."""
    connection = PeerConnection()
    header = pb.ConnectionHeader(service_name="AdminService")
    header.user_info.effective_user = "u" * 100_000
    call = pb.RequestHeader(call_id=1, method_name="m" * 5_000_000, request_param=True)
    connected, refused = connection.receive(
        wire.PREAMBLE + wire.frame(header.SerializeToString()) + wire.frame(wire.delimited(call))
    )
    assert isinstance(connected, Connected)
    assert isinstance(refused, CallRefused)
    assert len(connected.user) <= 100
    assert len(refused.method) <= 100
    assert len(refused.reply) < 1000
    other = PeerConnection()
    header.cell_block_codec_class = "c" * 5_000_000
    with pytest.raises(WireError) as error:
        other.receive(wire.PREAMBLE + wire.frame(header.SerializeToString()))
    assert len(str(error.value)) < 1000


def test_a_connection_with_unfinished_batches_is_not_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A region server ships several batches at a time; the answer to one does not make its connection idle."""
    monkeypatch.setattr(tcp_peer, "LIMITS", ConnectionLimits(most=10, idle_each=1))
    stored = threading.Event()

    def handle(edits: Edits) -> None:
        if b"slow" in [write.row for entry in edits.entries() for write in entry.writes]:
            assert stored.wait(10)

    server = PeerServer(handle, lambda error: None)
    try:
        busy = RegionServer(server.port)
        busy.ship(1, b"slow")
        busy.ship(2, b"fast")
        assert busy.answer() == (2, "")
        idle = [RegionServer(server.port) for _ in range(3)]
        wait_for(idle[0].is_closed, "the limit of idle connections closed none", 10)
        stored.set()
        assert busy.answer() == (1, "")
        for one in (busy, *idle):
            one.close()
    finally:
        server.close(wait=True)
