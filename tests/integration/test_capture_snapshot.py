"""`tailorbird snapshot` on a running capture: read tables again on demand and show the progress."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.commands import tailorbird

pytestmark = [pytest.mark.integration, pytest.mark.kafka("mysql-shop"), pytest.mark.timeout(180)]


def command(captured: Any, *arguments: str) -> str:
    """Return the output of `tailorbird snapshot`."""
    done = tailorbird("snapshot", str(captured.file), *arguments)
    assert not done.returncode, done.stderr
    return done.stdout


@pytest.mark.parametrize(("rows", "again"), [(10_000, 6_000), pytest.param(40_000, 30_000, marks=pytest.mark.matrix)])
def test_a_table_is_read_again_while_its_progress_is_shown(capture: Callable[..., Any], rows: int, again: int) -> None:
    """The rows that match the condition are published again; during the snapshot its progress is shown with an
    estimate.
    """
    captured = capture("t")
    captured.sql("CREATE TABLE t (id INT PRIMARY KEY, v INT)")
    for low in range(0, rows, 10_000):
        captured.sql("INSERT INTO t VALUES " + ",".join(f"({n},{n})" for n in range(low, low + 10_000)))
    captured.sql("ANALYZE TABLE t")
    process = captured.start()
    captured.wait_for(lambda: "rows" in str((captured.position() or {}).get("state")), "no snapshot starts")
    said = command(captured, "--json").splitlines()
    captured.streaming(process)
    for line in said:  # it may have ended already on a fast machine
        reported = json.loads(line)
        assert reported["table"] == f"shop.{captured.name}.t"
        assert reported["total"] is None or rows / 2 < reported["total"] < rows * 2
    assert "no snapshot is running" in command(captured)
    shown = command(captured, f"shop.{captured.name}.t", "--where", f"id < {again}", "--follow")
    assert "execute-snapshot" in shown

    def read() -> list[int]:
        """Return the ids of the rows that were read, once there are enough records: reading them takes seconds."""
        if captured.ends("t", "read_committed") < rows + again:
            return []
        return sorted(event["after"]["id"] for event in captured.events("t") if event["op"] == "r")

    # on a slow machine the capture may start only after --follow has stopped waiting for it
    captured.wait_for(lambda: len(read()) == rows + again, "the rows are not read again")
    assert read() == sorted([*range(rows), *range(again)])
    command(captured, f"shop.{captured.name}.t", "--where", "nothing = 1")
    captured.wait_for(lambda: "nothing" in str(captured.position()), "the signal does not arrive")
    captured.wait_for(lambda: "nothing" not in str(captured.position()), "the snapshot is not given up")
    captured.sql("INSERT INTO t VALUES (-1, 1)")
    captured.wait_for(lambda: any((e["after"] or {}).get("id") == -1 for e in captured.events("t")), "it ended")
    process.terminate()
    _, output = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "Unknown column 'nothing'" in output
