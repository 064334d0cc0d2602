"""`tailorbird snapshot` on a running capture: tables are read again on demand, and it shows how far that is."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]


def command(captured: Any, *arguments: str) -> str:
    """What `tailorbird snapshot` prints."""
    done = subprocess.run(
        [sys.executable, "-m", "console", "snapshot", str(captured.file), *arguments],
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert not done.returncode, done.stderr
    return done.stdout


def test_a_table_is_read_again_while_its_progress_is_shown(capture: Callable[..., Any]) -> None:
    """--follow ends when the rows have been published again; while it lasts the progress is told with an estimate."""
    captured = capture("t")
    captured.sql("CREATE TABLE t (id INT PRIMARY KEY, v INT)")
    for low in range(0, 40_000, 10_000):
        captured.sql("INSERT INTO t VALUES " + ",".join(f"({n},{n})" for n in range(low, low + 10_000)))
    captured.sql("ANALYZE TABLE t")
    process = captured.start()
    captured.wait_for(lambda: "rows" in str((captured.position() or {}).get("state")), "no snapshot begins")
    said = command(captured, "--json").splitlines()
    captured.streaming(process)
    for line in said:  # it may be over already on a fast machine
        told = json.loads(line)
        assert told["table"] == f"shop.{captured.name}.t"
        assert told["total"] is None or 20_000 < told["total"] < 80_000
    assert "no snapshot is under way" in command(captured)
    shown = command(captured, f"shop.{captured.name}.t", "--where", "id < 30000", "--follow")
    assert "execute-snapshot" in shown
    assert "done" in shown
    process.terminate()
    assert captured.end_of(process)[0] == 0
    read = [event["after"]["id"] for event in captured.events("t") if event["op"] == "r"]
    assert sorted(read) == sorted([*range(40_000), *range(30_000)])
