"""A client of MaxScale's CDC protocol, written from the protocol's description alone, without code of this project."""

from __future__ import annotations

import hashlib
import json
import socket
from typing import Any


class CdcClient:
    """One connection. It sends bytes unchanged, and line ends only on request."""

    def __init__(self, address: tuple[str, int], timeout: float = 30.0) -> None:
        self.socket = socket.create_connection(address, timeout=timeout)
        self.received = b""

    def __enter__(self) -> CdcClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def login(self, user: str = "foobar", password: str = "foopasswd") -> str:
        """Send bin2hex(user:SHA1(password))."""
        self.send((user.encode() + b":" + hashlib.sha1(password.encode()).digest()).hex().encode())
        return self.line()

    def register(self, form: str = "JSON") -> str:
        """Register as MariaDB's connector does."""
        self.send(f"REGISTER UUID=CDC_CONNECTOR-1.0.0, TYPE={form}".encode())
        return self.line()

    def open(self, form: str = "JSON") -> CdcClient:
        """Log in and register."""
        assert self.login() == "OK"
        assert self.register(form) == "OK"
        return self

    def request(self, what: str) -> None:
        """Send a request without a line end, as the connector does."""
        self.send(what.encode())

    def line(self) -> str:
        """Return the next line; empty if the server has closed the connection."""
        while b"\n" not in self.received:
            data = self.socket.recv(65536)
            if not data:
                rest, self.received = self.received, b""
                return rest.decode()
            self.received += data
        line, _, self.received = self.received.partition(b"\n")
        return line.decode()

    def objects(self, count: int) -> list[dict[str, Any]]:
        """Return a number of JSON objects, one per line."""
        return [json.loads(self.line()) for _ in range(count)]

    def ended(self) -> bool:
        """Return whether the server has closed the connection, after any further output."""
        try:
            while self.socket.recv(65536):
                pass
        except ConnectionResetError:
            pass
        return True
