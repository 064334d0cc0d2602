"""The `cdcusers` file: read anew when it changes, written whole or not at all, for its owner alone."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from pathlib import Path

from cdc.model.errors import UsageError
from cdc.process.file_topology import home
from ingest.maxscale.users import read_users, written_users


def users_file(topology: str) -> Path:
    """Where a topology's users stand unless another file is named."""
    return home() / "maxscale" / topology / "cdcusers"


class UsersFile:
    """Users by name. MaxScale's own file can be taken as it is."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._seen: tuple[int, int, int] | None = None
        self._users: Mapping[str, bytes] = {}
        self._lock = threading.Lock()

    def users(self) -> Mapping[str, bytes]:
        """Who may read; none where there is no file. UsageError where it holds what is none, or cannot be read."""
        with self._lock:
            try:
                reported = self.path.stat()
                seen = reported.st_mtime_ns, reported.st_size, reported.st_ino
                if seen != self._seen:
                    self._users = read_users(self.path.read_text(encoding="utf-8"), str(self.path))
                    self._seen = seen
            except FileNotFoundError:
                self._users, self._seen = {}, None
            except (OSError, UnicodeDecodeError) as error:
                raise UsageError(f"{self.path}: {error}", "name a readable text file") from error
            return self._users

    def write(self, users: Mapping[str, bytes]) -> None:
        """Replace them all; UsageError where the folder cannot be written."""
        fresh = self.path.with_name(f".{self.path.name}.{os.getpid()}")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with open(os.open(fresh, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
                file.write(written_users(users))
            fresh.replace(self.path)
        except OSError as error:
            raise UsageError(f"{self.path}: {error}", "name a file in a folder that can be written") from error
