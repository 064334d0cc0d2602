"""Parse the requests of one client of MaxScale's CDC protocol from the bytes that it sends.

Requests have no common terminator. The authentication (hex of `user:` and 20 bytes) and REGISTER, which ends with its
TYPE, are complete by their content; a line end or the next request may follow at once. All other requests end with a
line end, or after a pause (`quiet`). Source: MariaDB's documentation of the CDC protocol, and the behaviour of its
connector: no line ends, `UUID=CDC_CONNECTOR-1.0.0`, `CLOSE` at the end.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

Form = Literal["JSON", "AVRO"]
State = Literal["authenticating", "registering", "requesting"]
LONGEST = 64 * 1024  # maximum bytes of one request
_DIGEST = 20
_HEX = re.compile(rb"[0-9a-fA-F]*")
_EXAMPLES = b"REGISTER UUID=x,TYPE=JSON", b"REGISTER UUID=x,TYPE=AVRO"
_REGISTER = re.compile(rb"REGISTER\s+UUID=([^,\s]{1,256})\s*,\s*TYPE=(JSON|AVRO)", re.IGNORECASE)


class ProtocolFault(Exception):
    """Raised if a client violates the protocol. It receives `answer`, and the connection is closed."""

    def __init__(self, why: str, answer: str) -> None:
        super().__init__(why)
        self.answer = answer


@dataclass(frozen=True, slots=True)
class LoginRequest:
    """A login with the user's name and the SHA-1 of the password."""

    user: str
    digest: bytes


@dataclass(frozen=True, slots=True)
class RegistrationRequest:
    """A registration, which selects the format of rows."""

    uuid: str
    form: Form


@dataclass(frozen=True, slots=True)
class DataRequest:
    """A request for the rows of a table (`db.table` or `db.table.000001`) from a GTID on (empty: from the
    beginning)."""

    table: str
    gtid: str


@dataclass(frozen=True, slots=True)
class TransactionRequest:
    """A query about a transaction; about the last one if `gtid` is empty."""

    gtid: str


@dataclass(frozen=True, slots=True)
class CloseRequest:
    """A request to close the connection."""


@dataclass(frozen=True, slots=True)
class InvalidRequest:
    """An invalid request; the client receives `answer`, and the connection stays open."""

    answer: str


Request = LoginRequest | RegistrationRequest | DataRequest | TransactionRequest | CloseRequest | InvalidRequest
FAILED = "ERROR: Authentication failed\n"
UNREGISTERED = "ERR, code 12, msg: Registration failed\n"


class Conversation:
    """Parser of the bytes of one connection. Call `accepted` after a valid login."""

    def __init__(self) -> None:
        self.state: State = "authenticating"
        self._waiting = b""

    def feed(self, data: bytes) -> Iterator[Request]:
        """Add bytes and yield complete requests. Process each one before the next. Raises ProtocolFault."""
        self._waiting += data
        while (request := _READERS[self.state](self)) is not None:
            yield request
        if len(self._waiting) > LONGEST:
            raise ProtocolFault(f"more than {LONGEST} bytes without an end", "ERR: Request too long\n")

    def quiet(self) -> Iterator[Request]:
        """Yield the buffered bytes as a request after a pause, unless they are the begin of a login or registration."""
        if self.state == "requesting" and self._waiting.strip():
            yield from self.feed(b"\n")

    def accepted(self) -> None:
        """Note that the login is valid, so that requests may follow."""
        self.state = "registering"

    @property
    def waits(self) -> bool:
        """Return whether a part of a request is buffered."""
        return bool(self._waiting)

    def _login(self) -> Request | None:
        found = _HEX.match(self._waiting)
        digits = found[0] if found is not None else b""
        colon = next((at for at in range(0, len(digits) - 1, 2) if digits[at : at + 2].lower() == b"3a"), None)
        end = None if colon is None else colon + 2 + 2 * _DIGEST
        if end is not None and len(digits) >= end:
            login = bytes.fromhex(digits[:end].decode())
            user, _, digest = login.partition(b":")
            self._waiting = self._waiting[end:].lstrip(b"\r\n")
            try:
                return LoginRequest(user.decode(), digest)
            except UnicodeDecodeError as error:
                raise ProtocolFault("the user's name is not UTF-8", FAILED) from error
        if len(digits) < len(self._waiting) or len(digits) > 1024:
            raise ProtocolFault("no login", FAILED)
        return None

    def _registration(self) -> Request | None:
        text = self._waiting.lstrip()
        if match := _REGISTER.match(text):
            self._waiting = text[match.end() :].lstrip(b"\r\n")
            self.state = "requesting"
            return RegistrationRequest(match[1].decode("latin-1"), "AVRO" if match[2].upper() == b"AVRO" else "JSON")
        if text[:5].upper() == b"CLOSE":
            self._waiting = b""
            return CloseRequest()
        if b"\n" in text or len(text) > 512 or not _may_become_registration(text):
            raise ProtocolFault("no registration", UNREGISTERED)
        return None

    def _request(self) -> Request | None:
        text = self._waiting.lstrip()
        if text[:5].upper() == b"CLOSE":
            self._waiting = b""
            return CloseRequest()
        line, end, rest = text.partition(b"\n")
        if not end:
            return None
        self._waiting = rest
        return _request(line)


_READERS: Mapping[State, Callable[[Conversation], Request | None]] = {
    "authenticating": Conversation._login,
    "registering": Conversation._registration,
    "requesting": Conversation._request,
}


def _may_become_registration(text: bytes) -> bool:
    """Return whether the begin of a registration can be completed: by the rest of an example."""
    return any(_REGISTER.match(text + whole[at:]) for whole in _EXAMPLES for at in range(len(whole)))


def _request(line: bytes) -> Request:
    words = line.decode("utf-8", "replace").split()
    match [words[0].upper() if words else "", *words[1:]]:
        case ["REQUEST-DATA"]:
            return InvalidRequest("ERR REQUEST-DATA with no data.\n")
        case ["REQUEST-DATA", table]:
            return DataRequest(table, "")
        case ["REQUEST-DATA", table, gtid]:
            return DataRequest(table, gtid)
        case ["QUERY-LAST-TRANSACTION"]:
            return TransactionRequest("")
        case ["QUERY-TRANSACTION", gtid]:
            return TransactionRequest(gtid)
        case ["QUERY-TRANSACTION"]:
            return InvalidRequest("ERR QUERY-TRANSACTION with no data.\n")
    return InvalidRequest("ERR: Unknown command\n")
