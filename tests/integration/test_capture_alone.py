"""A topology with sources and no tables runs capture alone, like Debezium. It needs neither HBase nor Solr."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.commands import tailorbird
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.integration, pytest.mark.kafka("mysql-shop")]


def test_sources_without_tables_are_captured_watched_and_proved(
    capture: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`validate`, `doctor`, `plan`, `apply`, `run`, `status` and `verify` work, and contact no server but Kafka and
    MySQL.
    """
    monkeypatch.setenv("TAILORBIRD_HOME", str(tmp_path))
    captured = capture("t")
    captured.sql("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "INSERT INTO t VALUES (1, 1), (2, 2)")
    text = captured.file.read_text()
    file = tmp_path / "alone.yml"
    file.write_text(text[: text.index("\ntables:") + 1] + "hbase: {thrift: '127.0.0.1:1', zookeeper: '127.0.0.1:1'}\n")

    def run(*words: str, code: int = 0) -> str:
        done = tailorbird(*words)
        assert done.returncode == code, (words, done.stdout, done.stderr)
        return done.stdout + done.stderr

    assert "1 source, 0 tables, 0 indexes" in run("validate", str(file))
    assert "0 faults" in run("doctor", str(file))
    assert "nothing to create" in run("plan", str(file))
    assert "nothing to create" in run("apply", str(file))
    command = (sys.executable, "-m", "tailorbird", "run", str(file))
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        captured.caught_up()
        captured.sql("UPDATE t SET v = 3 WHERE id = 1")
        captured.caught_up()
        wait_for(lambda: tailorbird("status", str(file)).returncode == 0, "status reports a fault", 60)
        reported = [json.loads(line) for line in run("status", str(file), "--json").splitlines()]
        assert [(one["kind"], one["part"]) for one in reported] == [("process", "capture shop")]
        said = [json.loads(line) for line in run("verify", str(file), "--json").splitlines() if line.startswith("{")]
        assert [(one["stage"], one["outcome"], one["rows"]) for one in said if one["kind"] == "verdict"] == [
            ("log", "equal", 2)
        ]
    finally:
        process.send_signal(signal.SIGINT)
        output = process.communicate(timeout=60)[0]
    assert process.returncode == 0, output
    assert "Traceback" not in output
