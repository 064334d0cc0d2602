"""A server that speaks MySQL's protocol only to obtain the password of a client, or a file of its machine."""

from __future__ import annotations

import functools
import socket
import socketserver
import ssl
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from tests.support.certificates import self_signed

Way = Literal["clear text", "dialog", "own key", "own key, sha256", "own certificate", "local file"]
WAYS: tuple[Way, ...] = ("clear text", "dialog", "own key", "own key, sha256", "own certificate")  # of the password
_SALT = b"12345678" + b"abcdefghijkl"
# PROTOCOL_41, SECURE_CONNECTION, PLUGIN_AUTH, LENENC_CLIENT_DATA, CONNECT_WITH_DB
_CAPABILITIES = 0x200 | 0x8000 | 0x80000 | 0x200000 | 0x8
_SSL, _LOCAL_FILES = 0x800, 0x80
_OK = b"\0\0\0\x02\0\0\0"


@dataclass
class RogueMySql:
    """A listening impostor. `heard` contains everything that clients have sent to it, decrypted where it can."""

    port: int
    way: Way
    file: Path
    heard: list[bytes] = field(default_factory=list)
    asked: int = 0  # requests for the file

    def learned(self, secret: str) -> bool:
        """Return whether a client has sent the password, or the content of a file."""
        return any(secret.encode() in one for one in self.heard)


@functools.cache
def _own_key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(65537, 2048)


@contextmanager
def rogue_mysql(way: Way, folder: Path) -> Iterator[RogueMySql]:
    """Run an impostor on all addresses of this machine while the block lasts.

    In the way `local file` it accepts every password, and answers each query with a request for `folder/secret`."""
    key = _own_key()
    certificate, secret = self_signed()
    (folder / "rogue.pem").write_bytes(secret + certificate)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "rogue.pem")

    class Login(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            connection: socket.socket = self.request
            connection.settimeout(10)
            conversation = _Conversation(connection, rogue, key, context)
            try:
                conversation.hold()
            except (OSError, EOFError):
                return  # the client has left
            finally:
                conversation.close()

    with socketserver.ThreadingTCPServer(("0.0.0.0", 0), Login) as server:
        server.daemon_threads = True
        rogue = RogueMySql(server.server_address[1], way, folder / "secret")
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        yield rogue
        server.shutdown()


class _Conversation:
    """One login."""

    def __init__(
        self, connection: socket.socket, rogue: RogueMySql, key: rsa.RSAPrivateKey, context: ssl.SSLContext
    ) -> None:
        self._connection, self._rogue, self._key, self._context = connection, rogue, key, context
        self._number = 0

    def hold(self) -> None:
        """Greet the client, and ask for its password in the rogue's way."""
        way = self._rogue.way
        plugin = b"sha256_password" if way == "own key, sha256" else b"caching_sha2_password"
        capabilities = _CAPABILITIES | {"own certificate": _SSL, "local file": _LOCAL_FILES}.get(way, 0)
        self._send(
            b"\x0a8.0.36\0" + struct.pack("<I", 7) + _SALT[:8] + b"\0" + struct.pack("<H", capabilities & 0xFFFF)
            + b"\x2d" + struct.pack("<H", 2) + struct.pack("<H", capabilities >> 16) + bytes([21]) + bytes(10)
            + _SALT[8:] + b"\0" + plugin + b"\0"
        )  # fmt: skip
        answer = self._receive()
        if way == "own certificate":
            self._connection = self._context.wrap_socket(self._connection, server_side=True)
            answer = self._receive()
        if way == "local file":
            self._ask_for_the_file()
        if way == "clear text":
            self._send(b"\xfemysql_clear_password\0")
            self._receive()
        elif way == "dialog":
            self._send(b"\xfedialog\0\x02Password: ")
            self._receive()
        elif way == "own certificate":
            self._send(b"\x01\x04")  # caching_sha2: the server wants the whole password
            self._receive()
        else:
            if plugin == b"caching_sha2_password":
                self._send(b"\x01\x04")
                answer = self._receive()
            if answer.endswith((b"\x02", b"\x01\x01sha256_password\0")) or b"\x01\x01" in answer:
                public = self._key.public_key().public_bytes(
                    serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
                )
                self._send(b"\x01" + public)
                self._decrypt(self._receive())
        self._send(b"\xff" + struct.pack("<H", 1045) + b"#28000Access denied")

    def _ask_for_the_file(self) -> None:
        """Do so until the client leaves."""
        self._send(_OK)
        while True:
            sent = self._receive()
            if sent.startswith(b"\x03"):  # a query
                self._rogue.asked += 1
                self._send(b"\xfb" + str(self._rogue.file).encode())
            elif not sent:  # the end of a file
                self._send(_OK)

    def close(self) -> None:
        """End the login."""
        self._connection.close()

    def _decrypt(self, sent: bytes) -> None:
        sha1 = hashes.SHA1()  # the protocol's
        clear = self._key.decrypt(sent, padding.OAEP(padding.MGF1(sha1), sha1, None))
        self._rogue.heard.append(bytes(byte ^ _SALT[at % len(_SALT)] for at, byte in enumerate(clear)))

    def _send(self, payload: bytes) -> None:
        self._connection.sendall(struct.pack("<I", len(payload))[:3] + bytes([self._number]) + payload)
        self._number += 1

    def _receive(self) -> bytes:
        header = self._exactly(4)
        self._number = header[3] + 1
        payload = self._exactly(int.from_bytes(header[:3], "little"))
        self._rogue.heard.append(payload)
        return payload

    def _exactly(self, size: int) -> bytes:
        found = b""
        while len(found) < size:
            part = self._connection.recv(size - len(found))
            if not part:
                raise EOFError
            found += part
        return found
