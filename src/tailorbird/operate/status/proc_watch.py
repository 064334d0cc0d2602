"""Poll a server in a background thread, for callers that must not block."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from cdc.model.errors import Retriable

T = TypeVar("T")


class Watch(Generic[T]):
    """Polls a server every few seconds in a daemon thread. `last` never blocks."""

    def __init__(self, ask: Callable[[], T], *, name: str, every: float) -> None:
        self._ask, self._every = ask, every
        self._last: T | None = None
        threading.Thread(target=self._look, name=name, daemon=True).start()

    def last(self) -> T | None:
        """Return the answer of the last poll. None before the first answer, and if the last poll failed."""
        return self._last

    def _look(self) -> None:
        pause = threading.Event()
        while True:
            try:
                self._last = self._ask()
            except Retriable:
                self._last = None
            pause.wait(self._every)
