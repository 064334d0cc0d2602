"""Several workers of pytest on one stack of servers: the first starts it, the last stops it, and a test that kills
servers has them alone.

All of it are locks on files, which end with the process that holds them.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


class Sharing:
    """What workers on one machine agree on, in a folder of theirs."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._starts, self._users = folder / "starts.lock", folder / "users.lock"
        self._turn, self._servers = folder / "turn.lock", folder / "servers.lock"

    @contextmanager
    def running(self, first: Callable[[], None], last: Callable[[], None]) -> Iterator[None]:
        """Within, something runs that all workers use: `first` starts it where nobody uses it yet, `last` stops it."""
        with _opened(self._users) as users:
            with _locked(self._starts):
                if _alone(users):
                    first()
                fcntl.flock(users, fcntl.LOCK_SH)
            try:
                yield
            finally:
                with _locked(self._starts):
                    if _alone(users):
                        last()

    @contextmanager
    def held(self, *, alone: bool) -> Iterator[None]:
        """Use the servers beside others, or alone. Who asks first has its turn first, so that nobody waits for ever."""
        with _opened(self._servers) as servers:
            with _locked(self._turn):
                fcntl.flock(servers, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
            yield


def _alone(users: int) -> bool:
    try:
        fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextmanager
def _opened(file: Path) -> Iterator[int]:
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        yield descriptor
    finally:
        fcntl.flock(descriptor, fcntl.LOCK_UN)  # whatever was forked meanwhile has it open, too
        os.close(descriptor)


@contextmanager
def _locked(file: Path) -> Iterator[None]:
    with _opened(file) as descriptor:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
