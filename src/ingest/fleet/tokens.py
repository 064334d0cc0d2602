"""Tokens of operators and of agents, their roles, and how many guesses an address has; pure.

A token is `tb_<id>_<secret>`, its secret 256 bits. Only the SHA-256 of the secret is kept: a secret of so many bits
needs no salt and no slow hash, and whoever reads the topic has no token.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, Literal, get_args

Role = Literal["view", "operate", "admin"]
ROLES: tuple[Role, ...] = get_args(Role)  # each covers those before it
AGENT: Literal["agent"] = "agent"  # of an agent without a certificate: it opens a stream, and does nothing else
SECRET = 32  # bytes
_TOKEN = re.compile(r"tb_([0-9a-f]{16})_([A-Za-z0-9_-]{43})")
_NO_ONE = hashlib.sha256(b"").hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """Who may do what until when; `sha256` of its secret, as hex. Times in milliseconds since 1970."""

    id: str
    name: str
    role: Role | Literal["agent"]
    sha256: str
    issued_ms: int
    expires_ms: int
    revoked: bool = False

    def may(self, role: Role) -> bool:
        """Whether its role covers another."""
        return self.role != AGENT and ROLES.index(self.role) >= ROLES.index(role)

    def shown(self) -> dict[str, Any]:
        """All but what it is checked with."""
        return {
            "id": self.id, "name": self.name, "role": self.role, "issued_ms": self.issued_ms,
            "expires_ms": self.expires_ms, "revoked": self.revoked,
        }  # fmt: skip


def written(number: str, secret: str) -> str:
    """A token as its holder has it: `number` are 16 digits of hex, `secret` 43 characters of URL-safe base64."""
    return f"tb_{number}_{secret}"


def number_of(text: str) -> str:
    """The number of a token that somebody shows, right or not; empty for what is no token."""
    match = _TOKEN.fullmatch(text)
    return match[1] if match else ""


def hashed(secret: str) -> str:
    """What is kept of a secret."""
    return hashlib.sha256(secret.encode()).hexdigest()


def checked(text: str, tokens: dict[str, Token], now_ms: float) -> Token | str:
    """The token that somebody shows, or why it is none; it takes as long for an unknown one as for a wrong one."""
    match = _TOKEN.fullmatch(text)
    number, secret = (match[1], match[2]) if match else ("", "")
    found = tokens.get(number)
    right = hmac.compare_digest(hashed(secret), found.sha256 if found else _NO_ONE)
    if found is None or not right:
        return "no such token"
    if found.revoked:
        return f"token {found.id} was revoked"
    if now_ms >= found.expires_ms:
        return f"token {found.id} has expired"
    return found


class Guesses:
    """Failures by address: `most` within `window` seconds, then none is heard until the window is over; it holds at
    most `addresses`, the longest unheard go first. Times are seconds of one clock.
    """

    def __init__(self, most: int = 10, window: float = 60.0, addresses: int = 10_000) -> None:
        self._most, self._window, self._addresses = most, window, addresses
        self._failed: OrderedDict[str, tuple[float, int]] = OrderedDict()

    def shut(self, address: str, now: float) -> float:
        """Seconds until an address is heard again; 0 where it is."""
        since, count = self._failed.get(address, (now, 0))
        return max(0.0, since + self._window - now) if count >= self._most else 0.0

    def failed(self, address: str, now: float) -> None:
        """Count a failure."""
        since, count = self._failed.pop(address, (now, 0))
        if now - since >= self._window:
            since, count = now, 0
        self._failed[address] = (since, count + 1)
        while len(self._failed) > self._addresses:
            self._failed.popitem(last=False)
