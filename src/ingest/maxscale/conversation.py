"""What a client of MaxScale's CDC protocol says: bytes in, requests out; pure, without a socket or a clock.

The protocol has no frames. Authentication (hex of `user:` and 20 bytes) and REGISTER (it ends with its TYPE) tell their
ends themselves, and may be followed by a line end or by the next request at once; every other request ends with a line
end, or where nothing follows for some time (`quiet`). Source: MariaDB's documentation of the CDC protocol, and what its
connector sends: no line ends, `UUID=CDC_CONNECTOR-1.0.0`, `CLOSE` at the end.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

Form = Literal["JSON", "AVRO"]
State = Literal["authenticating", "registering", "requesting"]
LONGEST = 64 * 1024  # bytes of one request
_DIGEST = 20
_HEX = re.compile(rb"[0-9a-fA-F]*")
_REGISTER = re.compile(rb"REGISTER\s+UUID=([^,\s]{1,256})\s*,\s*TYPE=(JSON|AVRO)", re.IGNORECASE)


class ProtocolFault(Exception):
    """What was said is not the protocol: the connection ends with `answer`."""

    def __init__(self, why: str, answer: str) -> None:
        super().__init__(why)
        self.answer = answer


@dataclass(frozen=True, slots=True)
class LoginAsked:
    """A user, and the SHA-1 of the password."""

    user: str
    digest: bytes


@dataclass(frozen=True, slots=True)
class Registered:
    """Which form the client wants."""

    uuid: str
    form: Form


@dataclass(frozen=True, slots=True)
class DataRequested:
    """`table` as it was written (`db.table` or `db.table.000001`), `gtid` as it was written, empty for none."""

    table: str
    gtid: str


@dataclass(frozen=True, slots=True)
class TransactionAsked:
    """About a transaction; about the last one where `gtid` is empty."""

    gtid: str


@dataclass(frozen=True, slots=True)
class Closed:
    """The client has what it wants."""


@dataclass(frozen=True, slots=True)
class Misunderstood:
    """What is answered to a request that is none; the connection stays."""

    answer: str


Request = LoginAsked | Registered | DataRequested | TransactionAsked | Closed | Misunderstood
_FAILED = "ERROR: Authentication failed\n"
_UNREGISTERED = "ERR, code 12, msg: Registration failed\n"


class Conversation:
    """One connection's. `feed` it what arrives and take its requests; `accepted` says that a login was right."""

    def __init__(self) -> None:
        self.state: State = "authenticating"
        self._waiting = b""

    def feed(self, data: bytes) -> Iterator[Request]:
        """Take bytes; each whole request, to be dealt with before the next is taken. ProtocolFault ends it."""
        self._waiting += data
        while (request := _READERS[self.state](self)) is not None:
            yield request
        if len(self._waiting) > LONGEST:
            raise ProtocolFault(f"more than {LONGEST} bytes without an end", "ERR: Request too long\n")

    def quiet(self) -> Iterator[Request]:
        """Nothing has come for some time: what waits is a whole request, unless it is one that tells its end."""
        if self.state == "requesting" and self._waiting.strip():
            yield from self.feed(b"\n")

    def accepted(self) -> None:
        """The login was right."""
        self.state = "registering"

    @property
    def waits(self) -> bool:
        """Whether a request has begun to come."""
        return bool(self._waiting)

    def _login(self) -> Request | None:
        found = _HEX.match(self._waiting)
        digits = found[0] if found is not None else b""
        colon = next((at for at in range(0, len(digits) - 1, 2) if digits[at : at + 2].lower() == b"3a"), None)
        end = None if colon is None else colon + 2 + 2 * _DIGEST
        if end is not None and len(digits) >= end:
            said = bytes.fromhex(digits[:end].decode())
            user, _, digest = said.partition(b":")
            self._waiting = self._waiting[end:].lstrip(b"\r\n")
            try:
                return LoginAsked(user.decode(), digest)
            except UnicodeDecodeError as error:
                raise ProtocolFault("a user's name that is not UTF-8", _FAILED) from error
        if len(digits) < len(self._waiting) or len(digits) > 1024:
            raise ProtocolFault("no login", _FAILED)
        return None

    def _registration(self) -> Request | None:
        text = self._waiting.lstrip()
        if match := _REGISTER.match(text):
            self._waiting = text[match.end() :].lstrip(b"\r\n")
            self.state = "requesting"
            return Registered(match[1].decode("latin-1"), "AVRO" if match[2].upper() == b"AVRO" else "JSON")
        if text[:5].upper() == b"CLOSE":
            self._waiting = b""
            return Closed()
        begun = b"REGISTER"
        if text[: len(begun)].upper() != begun[: len(text)] or b"\n" in text.rstrip(b"\r\n") or len(text) > 512:
            raise ProtocolFault("no registration", _UNREGISTERED)
        if text.endswith(b"\n"):
            raise ProtocolFault("no registration", _UNREGISTERED)
        return None

    def _request(self) -> Request | None:
        text = self._waiting.lstrip()
        if text[:5].upper() == b"CLOSE":
            self._waiting = b""
            return Closed()
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


def _request(line: bytes) -> Request:
    words = line.decode("utf-8", "replace").split()
    match [words[0].upper() if words else "", *words[1:]]:
        case ["REQUEST-DATA"]:
            return Misunderstood("ERR REQUEST-DATA with no data.\n")
        case ["REQUEST-DATA", table]:
            return DataRequested(table, "")
        case ["REQUEST-DATA", table, gtid]:
            return DataRequested(table, gtid)
        case ["QUERY-LAST-TRANSACTION"]:
            return TransactionAsked("")
        case ["QUERY-TRANSACTION", gtid]:
            return TransactionAsked(gtid)
        case ["QUERY-TRANSACTION"]:
            return Misunderstood("ERR QUERY-TRANSACTION with no data.\n")
    return Misunderstood("ERR: Unknown command\n")
