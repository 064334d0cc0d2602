"""Users of the server, as lines of a `cdcusers` file in the format of MaxScale's own tool.

A line is `user:` and the upper-case hex of SHA1(SHA1(password)). Knowing the file is not enough to log in. But a login
that somebody records can be replayed, so the server requires TLS or a loopback address.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Iterable, Mapping

from cdc.model.errors import UsageError
from cdc.topology.topology import Source

_LINE = re.compile(r"([^:\s]+):\*?([0-9A-Fa-f]{40})")
_NAME = re.compile(r"[^:\s\x00-\x1f]{1,128}")
_NO_ONE = bytes(20)


def read_users(text: str, where: str) -> dict[str, bytes]:
    """Return the password hash by user from the text of a file. `where` names the file in the UsageError for a wrong
    line."""
    found: dict[str, bytes] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        match = _LINE.fullmatch(line.strip())
        if match is None:
            raise UsageError(
                f"{where}:{number}: not a user", "each line is NAME:HEX, as `tailorbird maxscale-users` writes it"
            )
        found[match[1]] = bytes.fromhex(match[2])
    return found


def written_users(users: Mapping[str, bytes]) -> str:
    """Return the text of the file; inverse of `read_users`."""
    return "".join(f"{name}:{check.hex().upper()}\n" for name, check in users.items())


def check_of(name: str, password: str) -> bytes:
    """Return the hash of a password that the file stores. Raises UsageError for an empty password, and for a name that
    the protocol cannot represent."""
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"{name!r} is not a valid user name", "use at most 128 characters, without colons and white space"
        )
    if not password:
        raise UsageError(f"{name}: the password is empty", "type one")
    return hashlib.sha1(hashlib.sha1(password.encode()).digest()).digest()


def service_users(sources: Iterable[Source]) -> dict[str, bytes]:
    """Return the accounts with which capture reads the sources: MaxScale's service users.

    Sources without an account have none. A name with two passwords is left out.
    """
    checks: dict[str, set[bytes]] = {}
    for source in sources:
        if _NAME.fullmatch(source.username) and source.password:
            checks.setdefault(source.username, set()).add(check_of(source.username, source.password))
    return {name: next(iter(found)) for name, found in checks.items() if len(found) == 1}


def is_right(users: Mapping[str, bytes], name: str, digest: bytes) -> bool:
    """Return whether `digest` is SHA1 of the user's password. An unknown user takes the same time."""
    wanted = users.get(name)
    same = hmac.compare_digest(hashlib.sha1(digest).digest(), wanted if wanted is not None else _NO_ONE)
    return same and wanted is not None
