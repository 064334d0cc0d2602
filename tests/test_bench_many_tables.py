"""The benchmark of many tables measures every figure that it prints, without a server."""

from __future__ import annotations

import pytest

from benchmarks import bench_many_tables


@pytest.mark.parametrize("policy", ["drop", "accept"])
def test_it_measures_what_it_prints(policy: str) -> None:
    """For listed tables and for all tables of a database."""
    found = bench_many_tables.measure(tables=5, columns=3, policy=policy, repeat=1)
    assert set(found) == set(bench_many_tables._ROWS)
    assert all(value >= 0 for name, value in found.items() if "mib" not in name)
    assert found["commit_bytes"] > found["gateway_bytes"]
