"""Attacks on a listening port, and one honest exchange with each server during an attack."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import http.client
import random
import socket
import ssl
import struct
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc

from indexer.peer import wire
from indexer.peer import wire_pb2 as pb
from ingest.fleet.fleet_pb2 import StreamRequest
from ingest.fleet.wire import METHOD, hello
from ingest.gateway_client.grpc_stream import Credentials

MB = 1 << 20
SOCKETS = 1000
TLS_HELLO = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"  # the beginning of a ClientHello of 512 bytes
CONNECTION = pb.ConnectionHeader(service_name="AdminService").SerializeToString()
BATCH = pb.RequestHeader(call_id=1, method_name="ReplicateWALEntry", request_param=True)
# the first bytes of a valid request; the client never sends the rest
BEGUN: dict[str, bytes] = {
    "operation": b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n",
    "replication": wire.PREAMBLE + wire.frame(CONNECTION) + struct.pack(">I", 60 * MB) + b"\0" * 1000,
    "syslog": b"60000 <13>1 - - - - - -",
    "maxscale": b"666f6f6261723a96",
    "api": TLS_HELLO,
    "gateway": TLS_HELLO,
    "dashboard": b"POST /login HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 40000\r\n\r\nname=",
}
# valid bytes before a line or frame that never ends
OPENING: dict[str, bytes] = {
    "replication": wire.PREAMBLE + wire.frame(CONNECTION) + struct.pack(">I", 60 * MB),
    "operation": b"GET /",
    "dashboard": b"GET /",
    "syslog": b"<13>",
}

Attack = Callable[["Target"], None]


class Target:
    """A server under attack. Sockets stay open until `close`."""

    def __init__(self, name: str, port: int, folder: Path) -> None:
        self.name, self.port, self.folder = name, port, folder
        self._held = contextlib.ExitStack()

    def connect(self) -> socket.socket:
        return self._held.enter_context(socket.create_connection(("127.0.0.1", self.port), 10))

    def hold(self, channel: contextlib.AbstractContextManager[object]) -> None:
        self._held.enter_context(channel)

    def close(self) -> None:
        self._held.close()


def idle(target: Target) -> None:
    """Open a thousand connections and send nothing."""
    for _ in range(SOCKETS):
        target.connect()


def half(target: Target) -> None:
    """Send the first bytes of a request on a thousand connections."""
    for _ in range(SOCKETS):
        with contextlib.suppress(OSError):
            target.connect().sendall(BEGUN[target.name])


def endless(target: Target) -> None:
    """Send up to 60 MB without an end on eight connections, until the server stops reading."""
    part = b"a" * MB
    for _ in range(8):
        with contextlib.suppress(OSError):
            one = target.connect()
            one.settimeout(0.2)
            one.sendall(OPENING.get(target.name, b""))
            for _ in range(60 if target.name == "replication" else 8):
                one.sendall(part)


def bomb(target: Target) -> None:
    """Send a few kilobytes that decompress to a hundred megabytes."""
    {"api": _gzip_body, "gateway": _compressed_message, "dashboard": _compressed_websocket}[target.name](target)


def _gzip_body(target: Target) -> None:
    body = gzip.compress(b"\0" * 100 * MB, 1)
    connection = http.client.HTTPSConnection("127.0.0.1", target.port, timeout=5, context=trusted(target.folder))
    with contextlib.closing(connection):
        headers = {"Content-Encoding": "gzip", "Content-Type": "application/json"}
        connection.request("POST", "/v1/sources/s", body, headers)
        assert connection.getresponse().status in (400, 401, 415)


def _compressed_message(target: Target) -> None:
    """Send a message of 100 MB, which gRPC compresses, as an agent with a valid certificate."""
    options = (("grpc.max_send_message_length", -1),)
    shown = Credentials.of(target.folder / "agent").channel()
    with grpc.secure_channel(f"127.0.0.1:{target.port}", shown, options, grpc.Compression.Gzip) as channel:
        call = channel.stream_stream(METHOD, request_serializer=bytes, response_deserializer=StreamRequest.FromString)
        try:
            list(call(iter([b"\0" * 100 * MB]), timeout=10))
        except grpc.RpcError as error:
            assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED, error  # noqa: PT017
        else:
            raise AssertionError("a message of 100 MB was accepted")


def _compressed_websocket(target: Target) -> None:
    """Send a message of 100 MB in a frame of permessage-deflate."""
    one = target.connect()
    one.sendall(
        b"GET /live HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
        b"Sec-WebSocket-Extensions: permessage-deflate\r\n\r\n"
    )
    head = one.recv(4096)
    assert head.startswith(b"HTTP/1.1 101"), head
    assert b"permessage-deflate" in head.lower()
    packer = zlib.compressobj(1, zlib.DEFLATED, -15)
    packed = b"".join(packer.compress(b"a" * MB) for _ in range(100)) + packer.flush(zlib.Z_SYNC_FLUSH)[:-4]
    one.sendall(b"\xc1\xff" + struct.pack(">Q", len(packed)) + b"\0\0\0\0" + packed)
    answer = one.recv(100)
    assert answer[:1] == b"\x88", answer  # it is closed


def noise(target: Target, chance: random.Random, count: int) -> None:
    """Send random bytes after random parts of a valid beginning, on some connections, and close them at random."""
    for _ in range(count):
        begun = OPENING.get(target.name, b"") + BEGUN[target.name]
        said = bytearray(begun[: chance.randint(0, len(begun))] + chance.randbytes(chance.randint(0, 3000)))
        for _ in range(chance.randint(0, 3)):
            if said:
                said[chance.randrange(len(said))] = chance.randrange(256)
        with contextlib.suppress(OSError):
            one = socket.create_connection(("127.0.0.1", target.port), 10)
            with one:
                one.settimeout(0.02)
                one.sendall(said)
                if chance.random() < 0.5:
                    one.recv(100)


def trusted(folder: Path) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(folder / "gateway" / "ca.pem"))


def exchange(target: Target, lines: Iterator[str]) -> None:
    """Make one valid request and check its answer. `lines` are what the server prints."""
    HONEST[target.name](target, lines)


def _health(target: Target, lines: Iterator[str]) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", target.port, timeout=10)
    with contextlib.closing(connection):
        connection.request("GET", "/health")
        assert connection.getresponse().status == 200


def _tokens(target: Target, lines: Iterator[str]) -> None:
    connection = http.client.HTTPSConnection("127.0.0.1", target.port, timeout=10, context=trusted(target.folder))
    with contextlib.closing(connection):
        connection.request("GET", "/openapi.json")
        assert connection.getresponse().status == 200


def _ship(target: Target, lines: Iterator[str]) -> None:
    request = pb.ReplicateWALEntryRequest()
    entry = request.entry.add(associated_cell_count=1)
    entry.key.encoded_region_name, entry.key.table_name = b"r", b"t:wide"
    entry.key.log_sequence_number, entry.key.write_time = 1, 1
    cells = wire.write_cells([wire.Cell(b"row", b"d", b"q", 1, wire.PUT, b"v" * 10_000)])
    with socket.create_connection(("127.0.0.1", target.port), 10) as one:
        one.sendall(wire.PREAMBLE + wire.frame(CONNECTION))
        one.sendall(wire.frame(wire.delimited(BATCH), wire.delimited(request), cells))
        assert len(one.recv(4096)) > 4


def _log(target: Target, lines: Iterator[str]) -> None:
    with socket.create_connection(("127.0.0.1", target.port), 10) as one:
        one.sendall(b"<13>1 - - - - - - honest\n")
        assert "honest" in next(lines)


def _log_in(target: Target, lines: Iterator[str]) -> None:
    with socket.create_connection(("127.0.0.1", target.port), 10) as one:
        one.sendall((b"anna:" + hashlib.sha1(b"secret").digest()).hex().encode())
        assert one.recv(100) == b"OK\n"


def _greet(target: Target, lines: Iterator[str]) -> None:
    shown = Credentials.of(target.folder / "agent").channel()
    with grpc.secure_channel(f"127.0.0.1:{target.port}", shown) as channel:
        call = channel.stream_stream(
            METHOD, request_serializer=StreamRequest.SerializeToString, response_deserializer=StreamRequest.FromString
        )
        assert next(call(iter([hello("0")]), timeout=10)).WhichOneof("payload") == "hello"


HONEST: dict[str, Callable[[Target, Iterator[str]], None]] = {
    "operation": _health,
    "replication": _ship,
    "syslog": _log,
    "maxscale": _log_in,
    "api": _tokens,
    "gateway": _greet,
    "dashboard": _health,
}
