"""Pages of long lists: the entries that contain all words of a search, from an offset, and how many there are."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

One = TypeVar("One")
Shown = TypeVar("Shown")


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """The part of a list that a client wants: at most `limit` entries (None: all) from `offset`.

    `search` is words separated by spaces; an entry must contain each of them, in upper or lower case."""

    search: str = ""
    offset: int = 0
    limit: int | None = None


WHOLE = Page()


@dataclass(frozen=True, slots=True, kw_only=True)
class PagedList(Generic[Shown]):
    """A page of a list. `total` is the number of all entries that match the search."""

    entries: list[Shown]
    total: int


def paged(
    every: Iterable[One], page: Page, text: Callable[[One], str], show: Callable[[One], Shown]
) -> PagedList[Shown]:
    """Return a page of a list. `text` is what a search finds an entry by; `show` converts only the page's entries."""
    words = page.search.lower().split()
    found, total = list[One](), 0
    for one in every:
        if words:
            within = text(one).lower()
            if not all(word in within for word in words):
                continue
        if total >= page.offset and (page.limit is None or len(found) < page.limit):
            found.append(one)
        total += 1
    return PagedList(entries=[show(one) for one in found], total=total)
