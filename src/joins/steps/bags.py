"""Store a bag of a group: its tuples in order, each with its count, in pages of at most 4 kB.

The group's entry has a directory of the pages: number, size, number of tuples, and first tuple of each. So a change
reads and writes only the directory and one page, and so does finding the least or greatest tuple. Pages that grow
too large are split, small ones are merged with a neighbour, and empty ones are removed."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from cdc.model.types import Canonical
from joins.query.group import Bag
from joins.steps.exact import added, dumped, exact, loaded, summed, zero
from joins.steps.ordered import order_of

PAGE = 4096  # bytes; a tuple that is larger has a page of its own
Entry = list[Any]  # the count of a tuple, then its values


@dataclass(slots=True)
class _Page:
    """One page: its number, its size in bytes, the number of its tuples, and its first tuple.

    `entries` is None until the page is read. `changed`: it must be stored."""

    number: int
    size: int
    tuples: int
    first: list[Canonical]
    entries: list[Entry] | None = None
    changed: bool = False


class Tuples:
    """One bag of one group. `stored` is its directory in the group's entry, or None for a new bag.

    `read` returns a page by its number, `fresh` returns an unused page number."""

    def __init__(
        self, bag: Bag, stored: list[Any] | None, read: Callable[[int], bytes | None], fresh: Callable[[], int]
    ) -> None:
        self._order, self._type = order_of(bag), bag.types[-1]
        self._read, self._fresh = read, fresh
        text, pages = stored if stored is not None else ("0", [])
        self.sum = loaded(text, self._type) if summed(self._type) else zero(self._type)
        self._pages = [_Page(number, size, tuples, first) for number, size, tuples, *first in pages]
        self._gone: list[int] = []

    @property
    def distinct(self) -> int:
        """Return the number of different tuples."""
        return sum(page.tuples for page in self._pages)

    def first(self) -> list[Canonical] | None:
        """Return the least tuple, or None if the bag is empty."""
        return next(self.entries(), (None, None))[1]

    def last(self) -> list[Canonical] | None:
        """Return the greatest tuple, or None if the bag is empty."""
        return next((self._entries(page)[-1][1:] for page in reversed(self._pages) if page.tuples), None)

    def entries(self) -> Iterator[tuple[int, list[Canonical]]]:
        """Yield the tuples in order, as (count, tuple). Pages are read when they are needed."""
        for page in self._pages:
            for times, *values in self._entries(page):
                yield times, values

    def change(self, counts: Mapping[tuple[Canonical, ...], int]) -> bool:
        """Add `counts`, which may be negative, to the counts of tuples. Return False if a count would fall below 0."""
        return all(self._count(list(values), times) for values, times in counts.items())

    def _count(self, values: list[Canonical], times: int) -> bool:
        at = self._order(values)
        page = self._page(at)
        entries = self._entries(page)
        place = bisect_left(entries, at, key=lambda entry: self._order(entry[1:]))
        known = place < len(entries) and self._order(entries[place][1:]) == at
        now = times + (entries[place][0] if known else 0)
        page.changed = True
        if now and known:
            entries[place][0] = now
        elif now:
            entries.insert(place, [now, *values])
        elif known:
            del entries[place]
        page.tuples = len(entries)
        if known != bool(now) and summed(self._type) and values[-1] is not None:
            self.sum = added(self.sum, exact(values[-1], self._type), -1 if known else 1)
        return now >= 0

    def _page(self, at: Any) -> _Page:
        """Return the page to which a tuple belongs."""
        if not self._pages:
            self._pages = [_Page(self._fresh(), 0, 0, [], entries=[], changed=True)]
        if len(self._pages) == 1:
            return self._pages[0]
        return self._pages[max(0, bisect_right(self._pages, at, key=lambda page: self._order(page.first)) - 1)]

    def _entries(self, page: _Page) -> list[Entry]:
        if page.entries is None:
            page.entries = orjson.loads(self._read(page.number) or b"[]")
        return page.entries

    def settled(self) -> dict[int, bytes | None]:
        """Split and merge pages by their size. Return the pages to store by number; None means that a page is
        removed."""
        stored: dict[int, bytes | None] = {}
        kept: list[_Page] = []
        for page in self._pages:
            for piece in self._parted(page) if page.changed else [page]:
                if kept and self._together(kept[-1], piece):
                    entries = [*self._entries(kept[-1]), *self._entries(piece)]
                    kept[-1] = self._made(kept[-1].number, entries)
                    self._gone.append(piece.number)
                else:
                    kept.append(piece)
        stored.update(dict.fromkeys(self._gone))
        stored.update((page.number, orjson.dumps(page.entries)) for page in kept if page.changed)
        self._pages, self._gone = kept, []
        return stored

    def _parted(self, page: _Page) -> list[_Page]:
        entries = self._entries(page)
        sizes = [len(orjson.dumps(entry)) + 1 for entry in entries]
        if not entries:
            self._gone.append(page.number)
            return []
        if sum(sizes) + 1 <= PAGE:
            return [self._made(page.number, entries)]
        parts = -(-sum(sizes) // (PAGE * 3 // 4))
        most, pieces, size = sum(sizes) / parts, list[list[Entry]]([[]]), 0
        for entry, length in zip(entries, sizes, strict=True):
            if pieces[-1] and (size >= most or size + length >= PAGE):
                pieces.append([])
                size = 0
            pieces[-1].append(entry)
            size += length
        return [self._made(page.number if place == 0 else self._fresh(), one) for place, one in enumerate(pieces)]

    def _together(self, one: _Page, other: _Page) -> bool:
        """Return whether two adjacent pages should be merged."""
        if not (one.changed or other.changed):
            return False
        return min(one.size, other.size) < PAGE // 4 and one.size + other.size <= PAGE * 3 // 4

    def _made(self, number: int, entries: list[Entry]) -> _Page:
        size = len(orjson.dumps(entries))
        return _Page(number, size, len(entries), entries[0][1:], entries=entries, changed=True)

    def directory(self) -> list[Any]:
        """Return the directory of the bag's pages, which is stored in the group's entry. Call it after `settled`."""
        return [dumped(self.sum), [[page.number, page.size, page.tuples, *page.first] for page in self._pages]]
