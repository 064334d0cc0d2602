"""Limit the posts that run at the same time to what Solr's processors can use: docs/adr/0121-concurrent-posts.md."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

from cdc.model.errors import Retriable
from indexer.solr.solr_http import UNAVAILABLE

MOST = 4  # more concurrent posts would only wait
_PROCESSORS = 2  # for each post: Solr also commits and merges
PATH = "/admin/info/system?wt=json"


class PostTurns:
    """Turns for posts to one Solr. Threads share it.

    `ask` sends a GET request to Solr (`SolrConnections.json`): half as many posts run as Solr has processors, at least
    one and at most `MOST`. While Solr refuses to say how many it has, `MOST` run. `timeout` (s) limits a wait."""

    def __init__(self, ask: Callable[[str, str], tuple[int, dict[str, Any]]], url: str, timeout: float) -> None:
        self._ask, self._url, self._timeout = ask, url, timeout
        self._free, self._limit = threading.Condition(), 0
        self._running = 0

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        """Wait for a turn, which lasts until the block ends. Raises Retriable after `timeout`."""
        most = self._limit or self._asked()
        with self._free:
            if not self._free.wait_for(lambda: self._running < most, self._timeout):
                raise Retriable(f"Solr at {self._url} is busy with earlier documents", UNAVAILABLE)
            self._running += 1
        try:
            yield
        finally:
            with self._free:
                self._running -= 1
                self._free.notify()

    def _asked(self) -> int:
        """Return the limit, and keep it if Solr has said how many processors it has."""
        try:
            found = self._ask("GET", PATH)[1].get("system", {}).get("availableProcessors")
        except Retriable:  # Solr is away, as the post will report, or a role may not read this
            return MOST
        if not isinstance(found, int):
            return MOST
        self._limit = min(MOST, max(1, found // _PROCESSORS))
        return self._limit
