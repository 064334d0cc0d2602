"""`tailorbird rewind` on a real server and Kafka: the replay has the original sequence numbers, later changes have
greater ones, although tables were altered in between.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.commands import tailorbird

pytestmark = [pytest.mark.integration, pytest.mark.kafka("mysql-shop"), pytest.mark.timeout(180)]


def rewind(captured: Any, *arguments: str) -> list[dict[str, Any]]:
    """Return the output of `tailorbird rewind`."""
    done = tailorbird("rewind", str(captured.file), "--json", *arguments)
    assert not done.returncode, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def reported(captured: Any) -> list[tuple[int, str, Any]]:
    """Return the changes of the table in order of publication, with their numbers."""
    events = [event for event in captured.events("t") if event["op"] != "r"]
    return [(event["source"]["sequence"], event["op"], event["after"]) for event in events]


def test_a_rewound_capture_gives_the_same_numbers_again(capture: Callable[..., Any]) -> None:
    """Rewind to the first position that is kept: the same changes have the same numbers; new changes have greater
    ones."""
    captured = capture("t")
    captured.sql("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "INSERT INTO t VALUES (1, 1)")
    process = captured.start()
    captured.streaming(process)
    captured.sql(
        "UPDATE t SET v = 2", "ALTER TABLE t ADD w INT DEFAULT 7", "UPDATE t SET v = 3",
        "INSERT INTO t VALUES (2, 2, 2)", "DELETE FROM t WHERE id = 2", "ALTER TABLE t DROP w",
        "INSERT INTO t VALUES (3, 3)",
    )  # fmt: skip
    captured.caught_up()
    once = reported(captured)
    assert len(once) == 5
    marks = rewind(captured)
    assert marks[0]["sequence"] == 0
    assert process.poll() is None  # listing the positions does not disturb the capture
    process.terminate()
    assert captured.end_of(process)[0] == 0
    for later in (("--before", "2999-01-01T00:00:00"), ("--to", f"{marks[0]['file']}:999999999")):
        refused = tailorbird("rewind", str(captured.file), *later)
        assert (refused.returncode, f"has not reached {later[1][:10]}" in refused.stderr) == (2, True), refused.stderr
    (back,) = rewind(captured, "--to-sequence", "0")
    assert back == marks[0]
    process = captured.start()
    captured.caught_up()
    captured.sql("UPDATE t SET v = 4 WHERE id = 3")
    captured.caught_up()
    process.terminate()
    assert captured.end_of(process)[0] == 0
    again = reported(captured)
    (last,) = [event for event in again if event[2] == {"id": 3, "v": 4}]
    assert Counter(map(str, again)) == Counter(map(str, [*once, *once, last]))
    assert last[0] > max(number for number, _, _ in once)
    versions = [json.loads(value)["version"] for _, _, value in captured.read(f"{captured.name}.schemas", 1)]
    assert versions == [1, 2, 3, 2, 3]
