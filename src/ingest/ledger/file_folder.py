"""The folder of a topology's ledger: a file per partition, and the lock of the one process that writes them."""

from __future__ import annotations

import fcntl
import os
import re
from pathlib import Path

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]")


class LedgerFolder:
    """`<home>/ledger/<topology>`; made where it is not there."""

    def __init__(self, home: Path, topology: str) -> None:
        self.path = home / "ledger" / topology
        self.path.mkdir(parents=True, exist_ok=True)
        self._lock = -1

    def take(self) -> bool:
        """Whether nobody else writes here; the lock goes with the process."""
        if self._lock < 0:
            self._lock = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def release(self) -> None:
        """Let another write here."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def file(self, topic: str, partition: int) -> Path:
        """The file of a partition; characters that are none of a file's are written as numbers."""
        name = _UNSAFE.sub(lambda match: f"%{ord(match[0]):x}", topic)
        return self.path / f"{name}-{partition}.sqlite"

    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.stat().st_size for file in self.path.iterdir() if file.is_file())
