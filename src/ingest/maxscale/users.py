"""Who may read: the lines of a `cdcusers` file, as MaxScale's own tool writes them; pure.

A line is `user:` and the upper-case hex of SHA1(SHA1(password)). Whoever has the file cannot log in with it; whoever
hears a login can repeat it: the protocol is as old as that, hence loopback, or TLS.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Mapping

from cdc.model.errors import UsageError

_LINE = re.compile(r"([^:\s]+):\*?([0-9A-Fa-f]{40})")
_NAME = re.compile(r"[^:\s\x00-\x1f]{1,128}")
_NO_ONE = bytes(20)


def read_users(text: str, where: str) -> dict[str, bytes]:
    """Users and what their passwords are checked with; UsageError naming the line that is none."""
    found: dict[str, bytes] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        match = _LINE.fullmatch(line.strip())
        if match is None:
            raise UsageError(
                f"{where}:{number}: no user", "each line is NAME:HEX, as `tailorbird maxscale-users` writes"
            )
        found[match[1]] = bytes.fromhex(match[2])
    return found


def written_users(users: Mapping[str, bytes]) -> str:
    """Inverse of `read_users`."""
    return "".join(f"{name}:{check.hex().upper()}\n" for name, check in users.items())


def check_of(name: str, password: str) -> bytes:
    """What a password is checked with; UsageError for a name that cannot be sent."""
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"{name!r} can be no user", "a name has no colon and no white space, and 128 characters at most"
        )
    if not password:
        raise UsageError(f"{name}: the password is empty", "type one")
    return hashlib.sha1(hashlib.sha1(password.encode()).digest()).digest()


def is_right(users: Mapping[str, bytes], name: str, digest: bytes) -> bool:
    """Whether SHA1(password) is the user's; it takes as long for whom nobody knows."""
    wanted = users.get(name)
    same = hmac.compare_digest(hashlib.sha1(digest).digest(), wanted if wanted is not None else _NO_ONE)
    return same and wanted is not None
