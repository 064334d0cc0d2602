"""Explains rows beside the pages: a few at a time, and none for long, whatever the servers behind it do."""

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
    """Asks `explain`, which tells of a table's row by its row key where its cells come from (None: no such row).

    What takes too long ends by its own servers' patience, and holds its place until then.
    """

    def __init__(self, explain: ExplainRow, *, at_once: int = AT_ONCE, seconds: float = SECONDS) -> None:
        self._explain, self._seconds = explain, seconds
        self._places = threading.BoundedSemaphore(at_once)
        self._threads = ThreadPoolExecutor(at_once, thread_name_prefix="explain")

    def ask(self, table: str, row_key: bytes) -> Mapping[str, Any] | None:
        """What it tells. Retriable while all places are taken, and for what takes too long; else its own errors."""
        if not self._places.acquire(blocking=False):
            raise Retriable("others' rows are being explained", "a moment later, or the command")
        try:
            future = self._threads.submit(self._explain, table, row_key)
        except BaseException:
            self._places.release()
            raise
        future.add_done_callback(lambda _: self._places.release())
        try:
            return future.result(self._seconds)
        except TooLong as error:
            reported = f"nothing was told within {self._seconds:g} s"
            raise Retriable(reported, "the command, which waits longer; `tailorbird status`") from error
