"""Shards of a SolrCloud collection: which one stores a document, and ids that every shard has one of.

SolrCloud's default router hashes a document's id with MurmurHash3 (32 bits, seed 0). Each shard owns a range of the
hashes. Ids that contain `!` or `/` are hashed in another way; none of the ids here does."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

_BITS = 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class ShardRange:
    """The hashes that a shard owns: signed 32-bit numbers, `last` included."""

    first: int
    last: int


def shard_ranges(cluster: Mapping[str, Any]) -> list[ShardRange]:
    """Return the ranges of the active shards from Solr's answer to CLUSTERSTATUS for one collection.

    Empty if the collection has another router, which has no ranges."""
    shards = [shard for one in cluster["collections"].values() for shard in one["shards"].values()]
    found = [shard["range"].split("-") for shard in shards if shard["state"] == "active" and shard.get("range")]
    return [ShardRange(_signed(int(first, 16)), _signed(int(last, 16))) for first, last in found]


def ids_of_all_shards(ranges: Sequence[ShardRange], named: Callable[[int], str]) -> list[str]:
    """Return one id for each range: the first of those that `named` makes from numbers and that hash into it."""
    left, found = list(ranges), list[str]()
    for number in count():
        if not left:
            return found
        hashed = _signed(murmur3(named(number).encode()))
        owner = next((one for one in left if one.first <= hashed <= one.last), None)
        if owner is not None:
            left.remove(owner)
            found.append(named(number))
    raise AssertionError("count never ends")


def murmur3(data: bytes) -> int:
    """Return the 32-bit MurmurHash3 (x86 variant, seed 0) as an unsigned number."""
    hashed, whole = 0, len(data) & ~3
    for at in range(0, whole, 4):
        hashed = _rotated(hashed ^ _mixed(int.from_bytes(data[at : at + 4], "little")), 13)
        hashed = (hashed * 5 + 0xE6546B64) & _BITS
    hashed ^= _mixed(int.from_bytes(data[whole:], "little")) if len(data) > whole else 0
    hashed ^= len(data)
    hashed = ((hashed ^ hashed >> 16) * 0x85EBCA6B) & _BITS
    hashed = ((hashed ^ hashed >> 13) * 0xC2B2AE35) & _BITS
    return hashed ^ hashed >> 16


def _mixed(word: int) -> int:
    return _rotated(word * 0xCC9E2D51 & _BITS, 15) * 0x1B873593 & _BITS


def _rotated(word: int, by: int) -> int:
    return (word << by | word >> 32 - by) & _BITS


def _signed(word: int) -> int:
    return word - (1 << 32) if word >> 31 else word
