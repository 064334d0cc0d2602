"""Verify users by name and argon2 hash, and limit attempts with wrong passwords."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Mapping

from cryptography.exceptions import InvalidKey
from cryptography.hazmat.primitives.kdf.argon2 import Argon2id

from cdc.model.errors import UsageError

_NAME = re.compile(r"[A-Za-z0-9._@-]{1,64}")
_HASH = re.compile(r"\$argon2id\$v=19\$m=(\d+),t=(\d+),p=(\d+)\$[A-Za-z0-9+/]+\$[A-Za-z0-9+/]+")
LEAST_KIB, LONGEST_PASSWORD = 19_456, 1_024
# the hash of an unused password, so that an unknown name takes as long as a known one
_NO_ONE = "$argon2id$v=19$m=19456,t=2,p=1$oxPm0cBJosBtIleilItmKw$JUbs0PolB3nQc/kEC4orSJGB4xVCjI68x0/K1aKd2v0"


def read_passwords(text: str, *, file: str) -> Mapping[str, str]:
    """Parse lines `name:hash` and `#` comments.

    Raises UsageError, without the hash, for any other line, a weak hash, a repeated name, or a text without users."""
    found: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        name, colon, hashed = line.strip().partition(":")
        match = _HASH.fullmatch(hashed)
        if not colon or not _NAME.fullmatch(name) or match is None:
            raise UsageError(f"{file}:{number}: not a line `name:hash`", "tailorbird password NAME writes one")
        if int(match[1]) < LEAST_KIB:
            raise UsageError(
                f"{file}:{number}: a hash of {match[1]} KiB", "tailorbird password NAME writes a strong one"
            )
        if name in found:
            raise UsageError(f"{file}:{number}: {name} twice", "each name once")
        found[name] = hashed
    if not found:
        raise UsageError(f"{file} has no users", "a line `name:hash`, as tailorbird password NAME writes it")
    return found


def hashed_password(password: str, salt: bytes) -> str:
    """Return the argon2id hash of a password, as stored in the file. `salt` is 16 random bytes."""
    kdf = Argon2id(salt=salt, length=32, iterations=2, lanes=1, memory_cost=LEAST_KIB)
    return kdf.derive_phc_encoded(password.encode())


def is_right(users: Mapping[str, str], name: str, password: str) -> bool:
    """Return whether the password is right. Unknown names take as long as known ones."""
    if len(password) > LONGEST_PASSWORD:
        return False
    try:
        Argon2id.verify_phc_encoded(password.encode(), users.get(name, _NO_ONE))
    except InvalidKey:
        return False
    return name in users


class Attempts:
    """Counts recent wrong passwords of each client. After too many, its attempts are rejected without a check.

    A client is an address, or an address with a user's name: other addresses can then not lock a user out. Times are in
    seconds. At most `most` clients are remembered; the one with the oldest attempt is dropped first."""

    def __init__(self, *, each: int = 10, within: float = 600.0, most: int = 10_000) -> None:
        self._each, self._within, self._most = each, within, most
        self._wrong: OrderedDict[str, list[float]] = OrderedDict()

    def seconds_to_wait(self, who: str, now: float) -> float:
        """Return the seconds until a client may try again (0: now)."""
        times = [at for at in self._wrong.get(who, ()) if at > now - self._within]
        return times[-self._each] + self._within - now if len(times) >= self._each else 0.0

    def wrong(self, who: str, now: float) -> None:
        """Record a wrong password."""
        times = [at for at in self._wrong.pop(who, ()) if at > now - self._within]
        self._wrong[who] = [*times[-self._each :], now]
        while len(self._wrong) > self._most:
            self._wrong.popitem(last=False)

    def right(self, who: str) -> None:
        """Forget the wrong passwords."""
        self._wrong.pop(who, None)

    def undo(self, who: str) -> None:
        """Forget the newest attempt, which was right. The earlier ones count."""
        if times := self._wrong.get(who):
            times.pop()


def safe_next(path: str) -> str:
    """Return the path to open after a login: `path` if it belongs to this server, otherwise `/`."""
    plain = path.startswith("/") and not path.startswith(("//", "/\\")) and path.isprintable() and "\\" not in path
    return path if plain and len(path) < 20_000 else "/"
