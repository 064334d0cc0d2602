"""Prefetch the next page in a thread, so that the server works while the caller compares."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Page = TypeVar("Page")
Row = TypeVar("Row")


def prefetch(pages: Iterator[Page]) -> Iterator[Page]:
    """Yield the same pages, and fetch the next one in a thread while the caller handles the current one.

    Errors of the pages are raised here. A caller that stops early waits for at most one page.
    """
    with ThreadPoolExecutor(1, "ahead") as pool:
        waiting = pool.submit(next, pages, None)
        while (page := waiting.result()) is not None:
            waiting = pool.submit(next, pages, None)
            yield page


def rows_in_order(buckets: int, pages: Callable[[int, bool], Iterator[Sequence[Row]]]) -> Iterator[Row]:
    """Yield every row of a salted table in key order, bucket by bucket.

    `pages(bucket, is_last)` returns the pages of a bucket. For the last bucket these include all later rows, which
    only other programs can have written."""
    for bucket in range(buckets):
        for page in prefetch(pages(bucket, bucket == buckets - 1)):
            yield from page
