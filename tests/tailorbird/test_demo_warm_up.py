"""When the demo takes its pipeline for warm."""

from __future__ import annotations

import pytest

from tailorbird.devtools.demo.warm_up import rounds_until_warm


@pytest.mark.parametrize(
    ("seconds", "rounds"),
    [([0.5] * 10, 3), ([9.0, 5.0, 0.5, 0.5], 4), ([0.5, 0.5, 5.0, 0.5, 5.0, 0.5, 0.5], 7), ([9.0] * 11, 10)],
)
def test_two_quick_rounds_in_a_row_are_warm(seconds: list[float], rounds: int) -> None:
    """There are three to ten rounds; a slow round restarts the count."""
    left = iter(seconds)
    assert rounds_until_warm(lambda: next(left)) == rounds
