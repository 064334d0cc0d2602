"""Merge two streams of items that are sorted by key, to compare them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

from cdc.model.errors import Fatal

Near = TypeVar("Near")
Far = TypeVar("Far")
Item = TypeVar("Item")


def merged(
    near: Iterable[tuple[str, Near]], far: Iterable[tuple[str, Far]]
) -> Iterator[tuple[str, Near | None, Far | None]]:
    """Yield each key once, in order, with its items of the near and the far stream (None: there is none).

    Reads each stream once and keeps one item of each. Raises Fatal if a stream is not strictly ascending, because
    existing rows would then be reported as missing."""
    ours, theirs = _ascending(near, "near"), _ascending(far, "far")
    left, right = next(ours, None), next(theirs, None)
    while left is not None or right is not None:
        if right is None or (left is not None and left[0] < right[0]):
            assert left is not None
            yield left[0], left[1], None
            left = next(ours, None)
        elif left is None or right[0] < left[0]:
            yield right[0], None, right[1]
            right = next(theirs, None)
        else:
            yield left[0], left[1], right[1]
            left, right = next(ours, None), next(theirs, None)


def _ascending(stream: Iterable[tuple[str, Item]], end: str) -> Iterator[tuple[str, Item]]:
    last: str | None = None
    for key, item in stream:
        if last is not None and key <= last:
            raise Fatal(f"rows of the {end} end are out of order: {key} after {last}", "this is a bug in verify")
        last = key
        yield key, item
