"""Two streams of rows, each in the order of its keys, read side by side: what each key has on both sides."""

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
    """Each key once, in order, with what stands there at the near and the far end; None where there is nothing.

    Reads each stream once and keeps one item of it. Fatal where a stream is not in strictly ascending order: a merge
    would then report rows as missing that are there.
    """
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
            raise Fatal(f"rows of the {end} end come out of order: {key} behind {last}", "this is a fault of verify's")
        last = key
        yield key, item
