"""Print the changes of a table as JSON lines: a client of MaxScale's CDC protocol, which `serve maxscale` speaks.

    python examples/cdc_client.py --host 127.0.0.1 --port 4001 --user reader shop.orders [GTID]

The password is asked for, or read from the variable CDC_PASSWORD. With a GTID, the stream begins at that transaction;
the client receives the whole transaction again. It needs only Python's standard library, and runs until interrupted.
"""

from __future__ import annotations

import argparse
import getpass
import hashlib
import json
import os
import socket
import sys
import uuid
from collections.abc import Iterator
from typing import Any


class CdcError(Exception):
    """The server refused a request, or closed the connection."""


class CdcConnection:
    """One connection to a server of the protocol. Requests are made in this order: `login`, `register`, `rows`."""

    def __init__(self, host: str, port: int) -> None:
        self._socket = socket.create_connection((host, port))
        self._lines = self._socket.makefile("rb")

    def __enter__(self) -> CdcConnection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._lines.close()
        self._socket.close()

    def login(self, user: str, password: str) -> None:
        """Authenticate: the hexadecimal form of the user, a colon and the SHA1 of the password."""
        digest = hashlib.sha1(password.encode()).digest()
        self._ask((user.encode() + b":" + digest).hex(), "login")

    def register(self) -> None:
        """Register for rows in JSON."""
        self._ask(f"REGISTER UUID={uuid.uuid4()}, TYPE=JSON", "registration")

    def rows(self, table: str, gtid: str = "") -> Iterator[dict[str, Any]]:
        """Yield the schema of a table and its changes, then new ones as they are committed.

        A schema has the key `fields`; it comes again whenever the columns of the table change.
        """
        self._send(f"REQUEST-DATA {table} {gtid}".rstrip() + "\n")
        for line in self._lines:
            if line.startswith(b"ERR"):
                raise CdcError(line.decode(errors="replace").strip())
            yield json.loads(line)
        raise CdcError("the server has closed the connection")

    def _ask(self, request: str, what: str) -> None:
        self._send(request)
        while not (answer := self._lines.readline()).strip():
            if not answer:
                raise CdcError(f"the server has closed the connection during the {what}")
        if answer.strip() != b"OK":
            raise CdcError(f"{what}: {answer.decode(errors='replace').strip()}")

    def _send(self, text: str) -> None:
        self._socket.sendall(text.encode())


def main(arguments: list[str] | None = None) -> int:
    """Run the client. Return the exit code: 1 if the server refuses it or closes the connection."""
    parser = argparse.ArgumentParser(description="Print the changes of a table as JSON lines.")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=4001)
    parser.add_argument("--user", required=True)
    parser.add_argument("table", help="database.table, or database.table.VERSION")
    parser.add_argument("gtid", nargs="?", default="", help="the first transaction to send")
    given = parser.parse_args(arguments)
    password = os.environ.get("CDC_PASSWORD") or getpass.getpass()
    try:
        with CdcConnection(given.host, given.port) as connection:
            connection.login(given.user, password)
            connection.register()
            for row in connection.rows(given.table, given.gtid):
                print(json.dumps(row, ensure_ascii=False), flush=True)
    except KeyboardInterrupt:
        return 0
    except (CdcError, OSError) as error:
        print(f"cdc_client: {error}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
