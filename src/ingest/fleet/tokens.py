"""Tokens of operators and agents, their roles, and the limit on failed attempts per address.

A token is `tb_<id>_<secret>` with a secret of 256 bits. Only the SHA-256 of the secret is stored, so the topic contains
no usable token. A random secret of that length needs no salt and no slow hash.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from cdc.oidc.claims import ROLES, Role

AGENT: Literal["agent"] = "agent"  # role of a token for an agent without a certificate, which may only open a stream
SECRET = 32  # bytes
_TOKEN = re.compile(r"tb_([0-9a-f]{16})_([A-Za-z0-9_-]{43})")
_NO_ONE = hashlib.sha256(b"").hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """A token: its holder's name, role and expiry. `sha256` is the secret's hash in hexadecimal.

    Times are milliseconds since 1970.
    """

    id: str
    name: str
    role: Role | Literal["agent"]
    sha256: str
    issued_ms: int
    expires_ms: int
    revoked: bool = False

    def may(self, role: Role) -> bool:
        """Return whether the token's role includes another role."""
        return self.role != AGENT and ROLES.index(self.role) >= ROLES.index(role)

    def shown(self) -> dict[str, Any]:
        """Return all fields except the hash, for people."""
        return {
            "id": self.id, "name": self.name, "role": self.role, "issued_ms": self.issued_ms,
            "expires_ms": self.expires_ms, "revoked": self.revoked,
        }  # fmt: skip


def written(number: str, secret: str) -> str:
    """Return the text of a token. `number` has 16 hexadecimal digits, `secret` 43 characters of URL-safe base64."""
    return f"tb_{number}_{secret}"


def number_of(text: str) -> str:
    """Return the id in a token's text, without any check; empty if the text is not a token."""
    match = _TOKEN.fullmatch(text)
    return match[1] if match else ""


def hashed(secret: str) -> str:
    """Return the hash of a secret, as it is stored."""
    return hashlib.sha256(secret.encode()).hexdigest()


def checked(text: str, tokens: dict[str, Token], now_ms: float) -> Token | str:
    """Return the token to which a text belongs, or why it is refused. `tokens` are by id.

    An unknown token and a wrong secret take the same time.
    """
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


def same_name(token: Token, tokens: Mapping[str, Token], now_ms: float) -> Token | None:
    """Return another valid token of an operator with the same name; None if there is none, or `token` is an agent's."""
    if token.role == AGENT:
        return None
    others = (one for one in tokens.values() if one.id != token.id and one.name == token.name and one.role != AGENT)
    return next((one for one in others if not one.revoked and now_ms < one.expires_ms), None)


class Guesses:
    """Limit of failed attempts per address.

    After `most` failures within `window` seconds, an address is refused until the window ends. At most `addresses`
    addresses are stored; the oldest are dropped first. Times are seconds of one clock.
    """

    def __init__(self, most: int = 10, window: float = 60.0, addresses: int = 10_000) -> None:
        self._most, self._window, self._addresses = most, window, addresses
        self._failed: OrderedDict[str, tuple[float, int]] = OrderedDict()

    def shut(self, address: str, now: float) -> float:
        """Return the number of seconds for which an address is still refused; 0 if it is accepted."""
        since, count = self._failed.get(address, (now, 0))
        return max(0.0, since + self._window - now) if count >= self._most else 0.0

    def failed(self, address: str, now: float) -> None:
        """Count a failed attempt."""
        since, count = self._failed.pop(address, (now, 0))
        if now - since >= self._window:
            since, count = now, 0
        self._failed[address] = (since, count + 1)
        while len(self._failed) > self._addresses:
            self._failed.popitem(last=False)
