"""Ids that are spread over the shards of a SolrCloud collection."""

from __future__ import annotations

from typing import Any

import pytest

from indexer.solr.shards import ShardRange, ids_of_all_shards, murmur3, shard_ranges


@pytest.mark.parametrize(
    ("text", "hashed"),
    [
        ("", 0),
        ("a", 0x3C2569B2),
        ("hello", 0x248BFA47),
        ("hello, world", 0x149BBB7F),
        ("The quick brown fox jumps over the lazy dog", 0x2E4FF723),
    ],
)
def test_the_hash_is_murmur3(text: str, hashed: int) -> None:
    """A shard without a probe would not be checked: the hash must be SolrCloud's."""
    assert murmur3(text.encode()) == hashed


def cluster(*ranges: str | None, state: str = "active") -> dict[str, Any]:
    shards = {f"shard{number}": {"range": one, "state": state} for number, one in enumerate(ranges)}
    return {"collections": {"orders_0": {"shards": shards}}}


def test_each_shard_gets_one_id() -> None:
    """Every shard replays its own log, so every shard is probed, and none twice."""
    texts = [f"{(0x80000000 + (n << 29)) % (1 << 32):x}-{(0x9FFFFFFF + (n << 29)) % (1 << 32):x}" for n in range(8)]
    ranges = shard_ranges(cluster(*texts))
    assert (ranges[0], ranges[7]) == (ShardRange(-(1 << 31), -0x60000001), ShardRange(0x60000000, 0x7FFFFFFF))
    found = ids_of_all_shards(ranges, lambda number: f"probe-{number}")
    owners = {
        texts.index(f"{murmur3(key.encode()) >> 29 << 29:x}-{murmur3(key.encode()) | 0x1FFFFFFF:x}") for key in found
    }
    assert len(found) == len(set(found)) == 8
    assert owners == set(range(8))


def test_three_shards_have_a_range_around_zero() -> None:
    """Ranges are of signed numbers: the middle one of three begins below zero and ends above."""
    ranges = shard_ranges(cluster("80000000-d554ffff", "d5550000-2aa9ffff", "2aaa0000-7fffffff"))
    assert len(ids_of_all_shards(ranges, str)) == 3


def test_shards_that_are_split_or_have_no_range_are_left_out() -> None:
    """A shard under construction receives its documents from its parent; another router has no ranges."""
    assert shard_ranges(cluster("80000000-7fffffff", state="construction")) == []
    assert shard_ranges(cluster(None)) == []
    assert ids_of_all_shards([], str) == []
