"""`tailorbird snapshot` on a running capture: tables are read again on demand, and it shows how far that is."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.commands import tailorbird

pytestmark = [pytest.mark.integration, pytest.mark.kafka("mysql-shop"), pytest.mark.timeout(180)]


def command(captured: Any, *arguments: str) -> str:
    """What `tailorbird snapshot` prints."""
    done = tailorbird("snapshot", str(captured.file), *arguments)
    assert not done.returncode, done.stderr
    return done.stdout


def test_a_table_is_read_again_while_its_progress_is_shown(capture: Callable[..., Any]) -> None:
    """The rows are published again, those of the condition; while it lasts the progress is told with an estimate."""
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
        reported = json.loads(line)
        assert reported["table"] == f"shop.{captured.name}.t"
        assert reported["total"] is None or 20_000 < reported["total"] < 80_000
    assert "no snapshot is under way" in command(captured)
    shown = command(captured, f"shop.{captured.name}.t", "--where", "id < 30000", "--follow")
    assert "execute-snapshot" in shown

    def read() -> list[int]:
        return sorted(event["after"]["id"] for event in captured.events("t") if event["op"] == "r")

    # on a slow machine the capture may obey only after --follow has given up waiting for it
    captured.wait_for(lambda: len(read()) == 70_000, "the rows are not read again")
    assert read() == sorted([*range(40_000), *range(30_000)])
    process.terminate()
    assert captured.end_of(process)[0] == 0
