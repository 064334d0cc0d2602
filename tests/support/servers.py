"""The servers that integration tests share within a worker, started when the first test needs them."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from tailorbird.devtools.stack.bars import reporting
from tailorbird.devtools.stack.proc_stack import Stack
from tailorbird.devtools.stack.settings import SERVICES, ServiceName, StackSettings

# above the default ports and below the ephemeral ones; a second worker uses the next range
_OFFSET, _ALONGSIDE = 10_000, 5_000


class Servers:
    """One stack; while it runs, the environment directs every topology and child process to it."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._stack: Stack | None = None
        self._up: set[ServiceName] = set()
        self._before: dict[str, str] = {}
        self._shared = os.environ.get("TAILORBIRD_TESTS_USE_RUNNING_STACK") == "1"

    @property
    def stack(self) -> Stack:
        """The stack; a test may stop and start its services."""
        assert self._stack is not None, "mark the test as integration"
        return self._stack

    def need(self, services: Sequence[ServiceName]) -> None:
        """Start these services and wait until they answer."""
        stack = self._stack or self._made()
        missing = [name for name in SERVICES if name in services and name not in self._up]
        if missing:
            with reporting() as progress:
                stack.up(progress, missing)
            self._up |= set(missing)

    def _made(self) -> Stack:
        worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
        name = f"tests-{worker}" if worker else "tests"
        offset = int(os.environ.get("TAILORBIRD_TESTS_PORT_OFFSET", _OFFSET)) + worker * _ALONGSIDE
        own = {key: value for key, value in os.environ.items() if not key.startswith("TAILORBIRD_PORT")}
        settings = (
            StackSettings.from_environ(os.environ, self._root)
            if self._shared
            else StackSettings.from_environ(own, self._root, home=Path(f".tailorbird/{name}"), port_offset=offset)
        )
        self._stack = Stack(settings)
        if not self._shared:
            self._stack.down(purge=True)
        self._before = dict(os.environ)
        os.environ.update(settings.environ())
        return self._stack

    def close(self) -> None:
        """Stop all started services."""
        if self._stack is None:
            return
        os.environ.clear()
        os.environ.update(self._before)
        if not self._shared:
            self._stack.down(purge=True)


class Claim:
    """The lock that allows one run of server tests per checkout: a second run would stop the servers of the first."""

    def __init__(self, root: Path) -> None:
        self._path = root / ".tailorbird" / "tests.lock"
        self._file = -1

    def take(self) -> bool:
        """Return whether no other run has the lock; it is released when this process exits."""
        if self._file < 0:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


def named(wanted: str | None, services: Iterable[ServiceName]) -> list[ServiceName]:
    """Return the services in the environment's comma-separated `wanted`, or all if it is empty."""
    return [name for name in services if wanted is None or name in wanted.split(",")]
