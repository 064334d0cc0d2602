"""Asks a server again and again beside what must not wait for it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from cdc.model.errors import Retriable

T = TypeVar("T")


class Watch(Generic[T]):
    """Asks every few seconds, from a thread that ends with the process; `last` never waits."""

    def __init__(self, ask: Callable[[], T], *, name: str, every: float) -> None:
        self._ask, self._every = ask, every
        self._last: T | None = None
        threading.Thread(target=self._look, name=name, daemon=True).start()

    def last(self) -> T | None:
        """The last answer; None before the first, and where the server was away when it was last asked."""
        return self._last

    def _look(self) -> None:
        pause = threading.Event()
        while True:
            try:
                self._last = self._ask()
            except Retriable:
                self._last = None
            pause.wait(self._every)
