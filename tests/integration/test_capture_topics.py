"""`log.topics` is changed between two runs of a capture of a real server."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from cdc.process.file_topology import load_topology
from tailorbird.verify.log.run_topics import verify_log
from tests.integration.conftest import CapturedDatabase

pytestmark = [pytest.mark.integration, pytest.mark.matrix, pytest.mark.kafka("mysql-shop"), pytest.mark.timeout(900)]


@pytest.mark.parametrize("topics", ["per_database", "per_source"])
def test_tables_move_into_one_topic_and_back(
    capture: Callable[..., CapturedDatabase], topics: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows change while no capture runs. Each start reads the tables into the topics of the setting, and `verify` finds
    no difference: deleted rows are gone, and a TRUNCATE of one table leaves the others' rows."""
    monkeypatch.setenv("TAILORBIRD_HOME", str(tmp_path / "home"))
    captured = capture("a", "b")
    text = captured.file.read_text()
    captured.sql(
        "CREATE TABLE a (id INT PRIMARY KEY, v INT)",
        "CREATE TABLE b (id INT PRIMARY KEY, v INT)",
        "INSERT INTO a VALUES (1, 1), (2, 2), (3, 3)",
        "INSERT INTO b VALUES (1, 10), (2, 20), (3, 30)",
    )
    shared = {"per_database": f"{captured.name}.shop.{captured.name}", "per_source": f"{captured.name}.shop.all_tables"}
    for number, now in enumerate(["per_table", topics, topics, "per_table"]):
        captured.file.write_text(text.replace("log: {", f"log: {{topics: {now}, "))
        process = captured.start()
        captured.caught_up()
        captured.streaming(process)
        captured.sql(
            f"INSERT INTO a VALUES ({10 + number}, 0)",
            f"UPDATE b SET v = v + 1 WHERE id = {1 + number % 2}",
            "TRUNCATE TABLE a" if number % 2 else "DELETE FROM a WHERE id = 2",
            f"INSERT INTO a VALUES ({20 + number}, 0)",
        )
        captured.caught_up()
        verdicts = list(verify_log(load_topology(str(captured.file))))
        assert [one.outcome for one in verdicts] == ["equal", "equal"], (now, verdicts)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        captured.sql("DELETE FROM b WHERE id = 3", f"INSERT INTO b VALUES (3, {number})")
    keys = {key for _, key, _ in captured.read(shared[topics])}
    assert b'{"__dbz__physicalTableIdentifier":"%s","id":1}' % captured.topic("b").encode() in keys
    assert b'{"__dbz__physicalTableIdentifier":"%s"}' % captured.topic("a").encode() in keys
