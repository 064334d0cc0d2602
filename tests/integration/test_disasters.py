"""Each loss of docs/disasters.md is restored by its steps, under traffic, and no row is missing afterwards."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.disasters.losses import DISASTERS

ROOT = Path(__file__).parents[2]
pytestmark = [pytest.mark.integration, pytest.mark.matrix, pytest.mark.timeout(2400)]


def run(*options: str) -> list[dict[str, object]]:
    """Run the benchmark on few rows, with servers of its own."""
    command = [sys.executable, "-m", "benchmarks.bench_disasters", "--orders", "3000", "--json", *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=2300)
    assert done.returncode == 0, done.stderr[-6000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_what_is_lost_is_restored() -> None:
    """`verify` finds log, table and index equal after each loss."""
    names = [one.name for one in DISASTERS if not one.name.startswith("full ")]
    found = run(*(word for name in names for word in ("--only", name)))
    assert [one["name"] for one in found] == names
    assert all(one["equal"] for one in found), found


@pytest.mark.skipif(os.geteuid() != 0, reason="a volume of limited size needs root to be mounted")
def test_a_full_disk_loses_nothing() -> None:
    """The volume of Kafka, HBase, Solr and the checkpoints is full for a while, one after the other."""
    names = [one.name for one in DISASTERS if one.name.startswith("full ")]
    found = run(*(word for name in names for word in ("--only", name)))
    assert [one["name"] for one in found] == names
    assert all(one["equal"] for one in found), found
