"""Reads one page ahead of whoever compares, so that a server works while we do."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Page = TypeVar("Page")


def ahead(pages: Iterator[Page]) -> Iterator[Page]:
    """The same pages; the next one is fetched, in a thread of its own, while the caller has the last one.

    What the pages raise is raised here. A caller that stops early waits for one page at most.
    """
    with ThreadPoolExecutor(1, "ahead") as pool:
        waiting = pool.submit(next, pages, None)
        while (page := waiting.result()) is not None:
            waiting = pool.submit(next, pages, None)
            yield page
