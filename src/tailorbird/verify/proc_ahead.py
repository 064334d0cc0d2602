"""Reads one page ahead of whoever compares, so that a server works while we do."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Page = TypeVar("Page")
Row = TypeVar("Row")


def ahead(pages: Iterator[Page]) -> Iterator[Page]:
    """The same pages; the next one is fetched, in a thread of its own, while the caller has the last one.

    What the pages raise is raised here. A caller that stops early waits for one page at most.
    """
    with ThreadPoolExecutor(1, "ahead") as pool:
        waiting = pool.submit(next, pages, None)
        while (page := waiting.result()) is not None:
            waiting = pool.submit(next, pages, None)
            yield page


def rows_in_order(buckets: int, pages: Callable[[int, bool], Iterator[Sequence[Row]]]) -> Iterator[Row]:
    """Every row of a salted table, bucket by bucket, so in the order of the keys.

    `pages` gives a bucket's; its second argument says that the bucket is the last one: then all behind it, too, where
    only others can have written.
    """
    for bucket in range(buckets):
        for page in ahead(pages(bucket, bucket == buckets - 1)):
            yield from page
