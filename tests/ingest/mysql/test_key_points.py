"""Keys that divide a table: valid values of the column, in order, and ranges of about equal size, also with gaps."""

from __future__ import annotations

from bisect import bisect_right
from itertools import pairwise
from random import Random
from typing import Any

import pytest

from ingest.mysql.key_points import divided, key_points

CHANCE = Random(5)
KEYS = {
    "even": [*range(1, 100_001)],
    "one far away": [*range(1, 100_000), 9 * 10**18],
    "two islands": [*range(1, 50_001), *range(10**12, 10**12 + 50_000)],
    "dense end": sorted({int(1e9 * CHANCE.random() ** 0.1) for _ in range(100_000)}),
    "negative": [*range(-(10**9), 10**9, 20_000)],
}


@pytest.mark.parametrize("name", KEYS)
@pytest.mark.parametrize("wanted", [2, 16])
def test_ranges_have_about_the_same_size(name: str, wanted: int) -> None:
    """The greatest range has less than twice the mean size, though the server is asked few times."""
    keys, asked = KEYS[name], list[int]()

    def estimate(number: int) -> float:
        asked.append(number)
        exact = bisect_right(keys, number) - 1
        return exact * CHANCE.uniform(0.99, 1.01)

    cuts = divided(keys[0], keys[-1], wanted, estimate, 200)
    bounds = [keys[0] - 1, *cuts, keys[-1]]
    sizes = [bisect_right(keys, high) - bisect_right(keys, low) for low, high in pairwise(bounds)]
    assert cuts == sorted(set(cuts))
    assert sum(sizes) == len(keys)
    assert max(sizes) < 2 * len(keys) / wanted
    assert len(asked) <= 201
    if name == "even":
        assert len(asked) <= 2 * wanted


@pytest.mark.parametrize(
    ("kind", "low", "high"),
    [
        ("int32", "-5", "1000"),
        ("uint64", "3000000000", "18446744073709551615"),
        ("decimal", "-1.50", "99.25"),
        ("date", "1999-12-31", "2024-02-29"),
        ("datetime", "1969-12-31 23:00:00.5", "2024-02-29 10:00:00.123456"),
        ("timestamp", "2001-01-01 00:00:00", "2024-02-29 10:00:00"),
        ("string", "order-0001", "order-9999"),
        ("string", "", "Ünïcode 東京"),
        ("bytes", {"hex": "00ff"}, {"hex": "ff00aa"}),
    ],
)
def test_values_between_two_are_of_their_kind_and_in_order(kind: str, low: Any, high: Any) -> None:
    """The server must accept each value as one of the column, and they must be in its order."""
    points = key_points(kind, low, high)
    assert points is not None
    step = (points.high - points.low) // 7
    assert step > 0
    values = [points.value(points.low + step * number) for number in range(1, 7)]
    again = [key_points(kind, low, value) for value in values]
    numbers = [found.high for found in again if found is not None]
    assert len(numbers) == 6
    plain = [value["hex"] if isinstance(value, dict) else value for value in values]
    if kind in ("date", "datetime", "timestamp", "string", "bytes"):
        assert plain == sorted(plain)
    else:
        assert [*map(float, plain)] == sorted(map(float, plain))


def test_a_collation_that_ignores_case_and_accents_has_letters_after_digits() -> None:
    """Other characters would be before the digits, or after all letters, where the estimates do not fit."""
    points = key_points("string", "Ä0f", "aF9", folds=True)
    assert points is not None
    assert points.low < points.high
    step = (points.high - points.low) // 9
    values = [points.value(points.low + step * number) for number in range(1, 9)]
    assert all(value.startswith("a") and value.isalnum() and value == value.lower() for value in values)
    assert values == sorted(values)


@pytest.mark.parametrize(
    ("kind", "low", "high"),
    [("date", "0000-00-00", "2024-01-01"), ("datetime", "x", "y"), ("int32", "1", None), ("bytes", {"hex": "0"}, {})],
)
def test_a_value_that_is_no_valid_one_divides_nothing(kind: str, low: Any, high: Any) -> None:
    """The table is then read as one range."""
    assert key_points(kind, low, high) is None
