"""An immutable mapping whose copies share memory, for states of many tables that are changed one table at a time.

It is a hash array mapped trie (Bagwell, "Ideal Hash Trees", 2001): inner nodes are tuples of 16, leaves are small
dicts. A changed copy costs a few nodes, however many keys there are. Two maps, of which one was made from the other,
are compared without looking at the nodes that they share.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

K = TypeVar("K")
V = TypeVar("V")
_BITS = 4
_WIDTH = 1 << _BITS
_LEAF = 16  # most keys of a leaf, except at the greatest depth
_DEPTH = 16  # 64 bits of a hash

Node = Any  # a leaf: dict[K, V]; an inner node: a tuple of 16 nodes. Never changed in place.


class PersistentMap(Mapping[K, V]):
    """Immutable mapping. The order of iteration is not defined. Equal to any mapping with the same items."""

    __slots__ = ("_root", "_size")

    def __init__(self, items: Mapping[K, V] | None = None) -> None:
        found: dict[K, V] = dict(items or {})
        self._root, self._size = _built(found, 0), len(found)

    def __getitem__(self, key: K) -> V:
        node, place = self._root, hash(key)
        while type(node) is tuple:
            node, place = node[place % _WIDTH], place >> _BITS
        found: V = node[key]
        return found

    def __iter__(self) -> Iterator[K]:
        for leaf in _leaves(self._root):
            yield from leaf

    def __len__(self) -> int:
        return self._size

    def __repr__(self) -> str:
        return f"PersistentMap({dict(self)!r})"

    __hash__ = None  # type: ignore[assignment]  # like any mapping: its values need not be hashable

    def put(self, key: K, value: V) -> PersistentMap[K, V]:
        """Return a copy with this item."""
        return self._made(_put(self._root, key, value, hash(key), 0), self._size + (key not in self))

    def without(self, key: K) -> PersistentMap[K, V]:
        """Return a copy without this key; the map itself if it does not contain the key."""
        return self._made(_without(self._root, key, hash(key)), self._size - 1) if key in self else self

    def updated(self, items: Mapping[K, V]) -> PersistentMap[K, V]:
        """Return a copy with these items."""
        if len(items) > len(self) // 4:
            return PersistentMap({**self, **items})
        found = self
        for key, value in items.items():
            found = found.put(key, value)
        return found

    def _made(self, root: Node, size: int) -> PersistentMap[K, V]:
        made: PersistentMap[K, V] = PersistentMap.__new__(PersistentMap)
        made._root, made._size = root, size
        return made


def persistent(items: Mapping[K, V]) -> PersistentMap[K, V]:
    """Return a mapping as PersistentMap: itself if it is one."""
    return items if isinstance(items, PersistentMap) else PersistentMap(items)


def changed_keys(before: Mapping[K, V], after: Mapping[K, V]) -> set[K]:
    """Return the keys that only one of two mappings has, or whose values are not the same object.

    If `after` was made from `before` by a few changes of a PersistentMap, this costs as much as the changes.
    """
    if before is after:
        return set()
    if isinstance(before, PersistentMap) and isinstance(after, PersistentMap):
        return set(_changed(before._root, after._root))
    return set(_changed(dict(before), dict(after)))


def _built(items: dict[K, V], depth: int) -> Node:
    """Return a node with these items; the hashes of their keys agree in the bits of all levels above `depth`."""
    if len(items) <= _LEAF or depth == _DEPTH:
        return items
    parts: list[dict[K, V]] = [{} for _ in range(_WIDTH)]
    for key, value in items.items():
        parts[(hash(key) >> (_BITS * depth)) % _WIDTH][key] = value
    return tuple(_built(part, depth + 1) for part in parts)


def _put(node: Node, key: Any, value: Any, place: int, depth: int) -> Node:
    if type(node) is dict:
        return _built({**node, key: value}, depth)
    at = place % _WIDTH
    return (*node[:at], _put(node[at], key, value, place >> _BITS, depth + 1), *node[at + 1 :])


def _without(node: Node, key: Any, place: int) -> Node:
    if type(node) is dict:
        return {known: value for known, value in node.items() if known != key}
    at = place % _WIDTH
    parts = (*node[:at], _without(node[at], key, place >> _BITS), *node[at + 1 :])
    if all(type(part) is dict for part in parts) and sum(map(len, parts)) <= _LEAF // 2:
        return {known: value for part in parts for known, value in part.items()}
    return parts


def _leaves(node: Node) -> Iterator[dict[Any, Any]]:
    if type(node) is dict:
        yield node
        return
    for part in node:
        yield from _leaves(part)


def _changed(before: Node, after: Node) -> Iterator[Any]:
    if before is after:
        return
    if type(before) is tuple and type(after) is tuple:
        for one, other in zip(before, after, strict=True):
            yield from _changed(one, other)
        return
    old = {key: value for leaf in _leaves(before) for key, value in leaf.items()}
    new = {key: value for leaf in _leaves(after) for key, value in leaf.items()}
    for key in old.keys() | new.keys():
        if key not in old or key not in new or old[key] is not new[key]:
            yield key
