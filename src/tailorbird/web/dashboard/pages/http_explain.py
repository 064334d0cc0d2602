"""Run `explain` for the pages: few rows at a time, with a time limit for each."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as TooLong
from typing import Any

from cdc.model.errors import Retriable

AT_ONCE, SECONDS = 2, 15.0
ExplainRow = Callable[[str, bytes], Mapping[str, Any] | None]


class ExplainRequests:
    """Limits calls of `explain`, which returns the sources of a row's cells by table and row key (None: no such
    row).

    A call that exceeds the time limit occupies its slot until the timeouts of the servers end it."""

    def __init__(self, explain: ExplainRow, *, at_once: int = AT_ONCE, seconds: float = SECONDS) -> None:
        self._explain, self._seconds = explain, seconds
        self._places = threading.BoundedSemaphore(at_once)
        self._threads = ThreadPoolExecutor(at_once, thread_name_prefix="explain")

    def ask(self, table: str, row_key: bytes) -> Mapping[str, Any] | None:
        """Return the explanation of a row, or None if there is no such row. Raises Retriable if too many calls run, or
        the time limit passes.

        Also raises the errors of `explain`."""
        if not self._places.acquire(blocking=False):
            raise Retriable("too many rows are being explained", "try again later, or use the command")
        try:
            future = self._threads.submit(self._explain, table, row_key)
        except BaseException:
            self._places.release()
            raise
        future.add_done_callback(lambda _: self._places.release())
        try:
            return future.result(self._seconds)
        except TooLong as error:
            reported = f"no explanation within {self._seconds:g} s"
            raise Retriable(reported, "use the command, which waits longer, or see `tailorbird status`") from error
