"""Digests of sets of rows, and a tree of digests over the leaves of a table.

A digest is the number of rows and the XOR of their hashes. So an insert, update or delete changes it by one XOR, in any
order. Digests of parts of a table add up to that of the table, and a node's digest is that of all leaves below it. The
hash of a row covers its key. The XOR is computed over the 32 hexadecimal characters of each hash, because SQL returns
hashes in that form. Two different sets of rows have the same digest with a probability of 2^-128: each character
matches by chance with a probability of at most 1/16.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

FAN = 4  # bits: sixteen children per node


class Digest(NamedTuple):
    """Number of rows (`count`), and the XOR of their hashes (`bits`). `+` adds another set of rows, `-` removes one.

    It is a tuple for speed: the ledger creates one for every change.
    """

    count: int = 0  # type: ignore[assignment]  # nobody counts a tuple's members
    bits: int = 0

    def __add__(self, other: Digest) -> Digest:  # type: ignore[override]  # not the sum of two tuples
        return Digest(self.count + other.count, self.bits ^ other.bits)

    def __sub__(self, other: Digest) -> Digest:
        return Digest(self.count - other.count, self.bits ^ other.bits)

    def __bool__(self) -> bool:
        return bool(self.count or self.bits)


NOTHING = Digest()


def delta(before: int | None, after: int | None) -> Digest:
    """Return the digest to add to a leaf when one of its rows changes.

    `before` and `after` are the row's hashes; None if the row did not, or does not, exist.
    """
    bits = (0 if before is None else _written(before)) ^ (0 if after is None else _written(after))
    return Digest((after is not None) - (before is not None), bits)


def _written(hash_: int) -> int:
    """Return the 32 hexadecimal characters of a hash, read as a number, so that numbers XOR like the characters."""
    return int.from_bytes(hash_.to_bytes(16, "big").hex().encode(), "big")


@dataclass(slots=True)
class Leaves:
    """The non-empty leaves of a table: leaf number → digest. Leaves that are missing have the digest `NOTHING`."""

    digests: dict[int, Digest] = field(default_factory=dict)

    def __getitem__(self, leaf: int) -> Digest:
        return self.digests.get(leaf, NOTHING)

    def add(self, leaf: int, change: Digest) -> None:
        """Add a digest to a leaf: the `delta` of a row, or the same leaf of another part of the table."""
        found = self[leaf] + change
        if found:
            self.digests[leaf] = found
        else:
            self.digests.pop(leaf, None)

    def take(self, leaf: int, change: Digest) -> None:
        """Subtract a digest from a leaf: the inverse of `add`."""
        self.add(leaf, NOTHING - change)

    def merge(self, other: Leaves) -> None:
        """Add all leaves of another part of the table. The parts must not share rows."""
        for leaf, digest in other.digests.items():
            self.add(leaf, digest)

    def total(self) -> Digest:
        """Return the digest of the whole table: the tree's root."""
        return _sum(self.digests.values())


class Nodes:
    """The tree over the present leaves. Level 0 are the leaves; each node above has sixteen children.

    Each level is computed once, in one pass over the one below. `asked` counts the nodes that a comparison visited.
    """

    def __init__(self, leaves: Leaves, bits: int) -> None:
        self.height = -(-bits // FAN)
        self._levels: list[Mapping[int, Digest]] = [leaves.digests]
        for _ in range(self.height):
            above: dict[int, Digest] = defaultdict(Digest)
            for number, digest in self._levels[-1].items():
                above[number >> FAN] += digest
            self._levels.append(above)
        self.asked = 0

    def node(self, level: int, number: int) -> Digest:
        """Return the digest of a node: that of all rows below it."""
        self.asked += 1
        return self._levels[level].get(number, NOTHING)

    def children(self, level: int, number: int) -> set[int]:
        """Return the numbers of the nodes one level below that contain rows."""
        below = self._levels[level - 1]
        return {child for child in range(number << FAN, (number + 1) << FAN) if child in below}


def differing(left: Nodes, right: Nodes) -> Iterator[int]:
    """Yield the leaves whose digests differ, in order. Only nodes below a differing node are visited. Both trees have
    the same height."""
    assert left.height == right.height, "trees of one grid"
    yield from _below(left, right, left.height, 0)


def _below(left: Nodes, right: Nodes, level: int, number: int) -> Iterator[int]:
    if left.node(level, number) == right.node(level, number):
        return
    if level == 0:
        yield number
        return
    for child in sorted(left.children(level, number) | right.children(level, number)):
        yield from _below(left, right, level - 1, child)


def _sum(digests: Iterable[Digest]) -> Digest:
    count = bits = 0
    for digest in digests:
        count, bits = count + digest.count, bits ^ digest.bits
    return Digest(count, bits)
