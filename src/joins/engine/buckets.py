"""Choose the grouping keys (buckets) of stateful operators in Spark, one per partition.

Spark's cost per group and batch is far above that of a row. So rows are grouped by bucket instead of by their own
key, and each bucket holds the state of many keys. Bucket numbers are chosen so that Spark's hash sends each to a
partition of its own. With the numbers 0 … n-1, some partitions would get two buckets and others none."""

from __future__ import annotations

import zlib

_MASK = 0xFFFFFFFF
_SEED = 42  # seed of Spark's HashPartitioning


def _rotated(value: int, by: int) -> int:
    return (value << by | value >> (32 - by)) & _MASK


def spark_hash(value: int) -> int:
    """Return Spark's `hash(int)`: Murmur3 (x86, 32 bits) of the 4 bytes with seed 42, as a signed number."""
    k = _rotated(value * 0xCC9E2D51 & _MASK, 15) * 0x1B873593 & _MASK
    h = (_rotated(_SEED ^ k, 13) * 5 + 0xE6546B64 & _MASK) ^ 4
    h = (h ^ h >> 16) * 0x85EBCA6B & _MASK
    h = (h ^ h >> 13) * 0xC2B2AE35 & _MASK
    h ^= h >> 16
    return h - (1 << 32) if h >> 31 else h


def bucket_numbers(partitions: int) -> tuple[int, ...]:
    """Return one number for each partition p, such that Spark sends a group with that number to p."""
    numbers: dict[int, int] = {}
    candidate = 0
    while len(numbers) < partitions:
        numbers.setdefault(spark_hash(candidate) % partitions, candidate)
        candidate += 1
    return tuple(numbers[partition] for partition in range(partitions))


def bucket_of(text: str, numbers: tuple[int, ...]) -> int:
    """Return the bucket of a key. It must never change between releases, because checkpoints depend on it."""
    return numbers[zlib.crc32(text.encode()) % len(numbers)]
