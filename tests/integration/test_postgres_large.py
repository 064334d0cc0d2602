"""Capture a transaction of 300,000 rows from a real PostgreSQL: in parts, once each, in bounded memory."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.integration, pytest.mark.matrix, pytest.mark.kafka, pytest.mark.timeout(280)]
ROWS, MOST_MB = 300_000, 150


def test_a_huge_transaction_takes_bounded_memory(capture_postgres: Callable[..., Any]) -> None:
    """The server spills it, as MySQL does, and published parts are released."""
    captured = capture_postgres("t")
    captured.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, v TEXT)")
    process = captured.start()
    captured.streaming(process)
    captured.sql(f"INSERT INTO t SELECT g, repeat('x', 200) FROM generate_series(1, {ROWS}) g")
    largest = 0.0

    def reported() -> bool:
        nonlocal largest
        for line in Path(f"/proc/{process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                largest = max(largest, int(line.split()[1]) / 1024)
        position = captured.position()
        return position is not None and position["position"]["sequence"] >= ROWS and "open" not in position

    captured.wait_for(reported, "it is not published")
    process.terminate()
    assert captured.end_of(process)[0] == 0
    assert largest < MOST_MB, f"{largest:.0f} MB"
    ids = [json.loads(key)["id"] for _, key, value in captured.read(captured.topic("t")) if value is not None]
    assert sorted(ids) == list(range(1, ROWS + 1))
