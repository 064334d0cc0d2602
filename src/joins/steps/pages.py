"""Store the rows at one join key in pages, for the Python engine. A change reads and writes only one page.

The entry of a key has its right side and, if they fit into one page, its rows. Otherwise each page is an entry of
its own. A row's hash selects its page. When pages are full their number doubles, and when few rows are left they
return to one page. So the cost of a change is constant on average."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator, Mapping, MutableMapping

from joins.steps.records import pack, unpack

PAGE = 64  # rows
_HEAD = struct.Struct(">II")  # pages, rows


class Pages(MutableMapping[bytes, bytes]):
    """A mapping from row id to payload, for the rows at one join key.

    `read` returns the entry of a page, or None. A page is read when it is first needed."""

    def __init__(self, read: Callable[[int], bytes | None], pages: int = 1, rows: int = 0) -> None:
        self._read, self.pages, self._rows = read, pages, rows
        self._held: dict[int, dict[bytes, bytes]] = {}
        self._changed: set[int] = set()

    def copy(self) -> Pages:
        """Return this object itself: the store keeps the former rows until new ones are stored."""
        return self

    def __getitem__(self, row: bytes) -> bytes:
        return self._page(self._at(row))[row]

    def __contains__(self, row: object) -> bool:
        return isinstance(row, bytes) and row in self._page(self._at(row))

    def __setitem__(self, row: bytes, payload: bytes) -> None:
        at = self._at(row)
        page = self._page(at)
        self._rows += row not in page
        page[row] = payload
        self._changed.add(at)

    def __delitem__(self, row: bytes) -> None:
        at = self._at(row)
        del self._page(at)[row]
        self._rows -= 1
        self._changed.add(at)

    def __iter__(self) -> Iterator[bytes]:
        for at in range(self.pages):
            yield from self._page(at)

    def __len__(self) -> int:
        return self._rows

    def listed(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield all rows with their payloads, without keeping pages in memory."""
        for at in range(self.pages):
            page = self._held.get(at)
            yield from (_unpacked(self._read(at)) if page is None else page).items()

    def settle(self) -> None:
        """Adapt the number of pages to the number of rows. Call it before storing."""
        wanted = self.pages
        while self._rows > PAGE * wanted:
            wanted *= 2
        if self._rows <= PAGE // 2:
            wanted = 1
        if wanted != self.pages:
            rows = dict(self)
            self._changed = {*range(max(wanted, self.pages))}
            self.pages = wanted
            self._held = {at: {} for at in self._changed}
            for row, payload in rows.items():
                self._held[self._at(row)][row] = payload

    def changed(self) -> dict[int, bytes | None]:
        """Return the pages to store by number, None for a removed one. A single page is stored in the key's entry
        instead."""
        kept = range(self.pages if self.pages > 1 else 0)
        return {at: _packed(self._held[at]) if at in kept and self._held[at] else None for at in sorted(self._changed)}

    def head(self, right: bytes) -> bytes:
        """Return the entry of the join key. `right` is the payload of the joined row that has the key (empty: none)."""
        rows = _packed(self._page(0)) if self.pages == 1 else b""
        return pack([_HEAD.pack(self.pages, self._rows), right, rows])

    def _at(self, row: bytes) -> int:
        return zlib.crc32(row) % self.pages

    def _page(self, at: int) -> dict[bytes, bytes]:
        if at not in self._held:
            self._held[at] = _unpacked(self._read(at))
        return self._held[at]


def opened(head: bytes, read: Callable[[int], bytes | None]) -> tuple[bytes, Pages]:
    """Decode the entry `head` of a join key. Return the payload of its right side, and its rows.

    The right side is the joined row that has the key. `read` returns the entry of a page, or None."""
    numbers, right, only = unpack(head)
    pages, rows = _HEAD.unpack(numbers)
    return right, Pages((lambda _: only) if pages == 1 else read, pages, rows)


def filled(rows: Mapping[bytes, bytes]) -> Pages:
    """Return pages with these rows, for a key without stored rows."""
    made = Pages(lambda _: None)
    made.update(rows)
    return made


def page_key(k: bytes, page: int) -> bytes:
    """Return the store key of a page. It differs from all other keys, because only it has a zero byte after the
    first byte."""
    return k + b"\0" + page.to_bytes(4, "big")


def _packed(rows: Mapping[bytes, bytes]) -> bytes:
    return pack([part for row in rows.items() for part in row])


def _unpacked(stored: bytes | None) -> dict[bytes, bytes]:
    parts = unpack(stored or b"")
    return dict(zip(parts[::2], parts[1::2], strict=True))
