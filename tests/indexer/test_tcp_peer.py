"""The peer's server on a real socket: what is acknowledged, what is sent back, and what ends the process."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from cdc.model.errors import Fatal, Retriable, TailorbirdError
from indexer.peer import wire
from indexer.peer import wire_pb2 as pb
from indexer.peer.peer import Edits
from indexer.peer.tcp_peer import PeerServer
from indexer.peer.wire import PUT, Cell


class RegionServer:
    """Ships batches like HBase and reads the answers."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), 10)
        self._frames = wire.Frames()
        header = pb.ConnectionHeader(service_name="AdminService")
        header.user_info.effective_user = "hbase"
        self._socket.sendall(wire.PREAMBLE + wire.frame(header.SerializeToString()))

    def ship(self, call_id: int, row: bytes) -> None:
        header = pb.RequestHeader(call_id=call_id, method_name="ReplicateWALEntry", request_param=True)
        request = pb.ReplicateWALEntryRequest()
        entry = request.entry.add(associated_cell_count=1)
        entry.key.encoded_region_name, entry.key.table_name = b"r", b"t:wide"
        entry.key.log_sequence_number, entry.key.write_time = 1, 1
        cells = wire.write_cells([Cell(row, b"d", b"q", 1, PUT, b"v")])
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
        return self._socket.recv(1) == b""

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
