"""The folder of a topology's ledger: one file per partition, and the lock of the process that writes them."""

from __future__ import annotations

import fcntl
import os
import re
from pathlib import Path

from cdc.process.file_private import private_folder

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]")


class LedgerFolder:
    """The folder `<home>/ledger/<topology>`, which is created if it does not exist."""

    def __init__(self, home: Path, topology: str) -> None:
        self.path = home / "ledger" / topology
        private_folder(self.path)
        self._lock = -1

    def take(self) -> bool:
        """Take the lock that only the writer of the ledger has. Returns False if another process has it.

        The operating system releases the lock when the process ends.
        """
        if self._lock < 0:
            self._lock = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def release(self) -> None:
        """Release the lock."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def file(self, topic: str, partition: int) -> Path:
        """Return the path of a partition's file. Characters that file names should not contain are escaped."""
        name = _UNSAFE.sub(lambda match: f"%{ord(match[0]):x}", topic)
        return self.path / f"{name}-{partition}.sqlite"

    def size(self) -> int:
        """Return the total size of all files in bytes."""
        return sum(file.stat().st_size for file in self.path.iterdir() if file.is_file())
