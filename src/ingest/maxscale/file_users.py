"""The file of users, `cdcusers`: read again when it changes, written atomically, and readable only by its owner."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from pathlib import Path

from cdc.model.errors import UsageError
from cdc.process.file_private import create_private
from cdc.process.file_topology import home
from ingest.maxscale.users import read_users, written_users


def users_file(topology: str) -> Path:
    """Return the default users file of a topology."""
    return home() / "maxscale" / topology / "cdcusers"


class UsersFile:
    """Users and password hashes in a file, in the format of MaxScale's own file.

    While the file does not exist, the users are those of `otherwise`.
    """

    def __init__(self, path: Path, otherwise: Mapping[str, bytes] | None = None) -> None:
        self.path, self._otherwise = path, dict(otherwise or {})
        self._seen: tuple[int, int, int] | None = None
        self._users: Mapping[str, bytes] = {}
        self._lock = threading.Lock()

    def users(self) -> Mapping[str, bytes]:
        """Return the password hash by user; those of `otherwise` while the file does not exist. Raises UsageError if
        the file cannot be read."""
        with self._lock:
            try:
                status = self.path.stat()
                seen = status.st_mtime_ns, status.st_size, status.st_ino
                if seen != self._seen:
                    self._users = read_users(self.path.read_text(encoding="utf-8"), str(self.path))
                    self._seen = seen
            except FileNotFoundError:
                self._users, self._seen = self._otherwise, None
            except (OSError, UnicodeDecodeError) as error:
                raise UsageError(f"{self.path}: {error}", "name a readable text file") from error
            return self._users

    def write(self, users: Mapping[str, bytes]) -> None:
        """Replace all users. Raises UsageError if the folder is not writable."""
        fresh = self.path.with_name(f".{self.path.name}.{os.getpid()}")
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with create_private(fresh) as file:
                file.write(written_users(users))
            fresh.replace(self.path)
        except OSError as error:
            raise UsageError(f"{self.path}: {error}", "name a file in a writable folder") from error
