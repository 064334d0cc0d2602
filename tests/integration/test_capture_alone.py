"""A topology with sources and no tables runs capture alone, like Debezium. It needs neither HBase nor Solr, and reports
its runs to an OpenLineage receiver.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.commands import tailorbird
from tests.support.lineage_receiver import LineageReceiver, lineage_receiver
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.integration, pytest.mark.kafka("mysql-shop")]

_VALUE, _WRONG = 987654321, "no-such-secret"


def test_sources_without_tables_are_captured_watched_and_proved(
    capture: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`validate`, `doctor`, `plan`, `apply`, `run`, `status` and `verify` work, and contact no server but Kafka and
    MySQL. Each run of the capture has a begin, its columns, and an end.
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
    with lineage_receiver() as receiver:
        for name, value in receiver.environ().items():
            monkeypatch.setenv(name, value)
        _runs(captured, file, run)
        _fails(file)
    _reported(captured, receiver)


def _runs(captured: Any, file: Path, run: Callable[..., str]) -> None:
    command = (sys.executable, "-m", "tailorbird", "run", str(file))
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        captured.caught_up()
        captured.sql(f"UPDATE t SET v = {_VALUE} WHERE id = 1")
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


def _fails(file: Path) -> None:
    """Capture with a wrong password."""
    wrong = file.with_name("wrong.yml")
    wrong.write_text(file.read_text().replace("password: cdc", f"password: {_WRONG}"))
    command = (sys.executable, "-m", "tailorbird", "capture", str(wrong), "--source", "shop")
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2, done.stderr


def _reported(captured: Any, receiver: LineageReceiver) -> None:
    """Check the events of both runs."""
    job = f"{captured.name}.capture.shop"
    assert receiver.steps(job)[:4] == ["START", "RUNNING", "COMPLETE", "START"]
    first, second = receiver.of(job)[:3], receiver.of(job)[3:]
    assert len({one["run"]["runId"] for one in first}) == len({one["run"]["runId"] for one in second}) == 1
    assert second[-1]["eventType"] == "FAIL"
    assert "check username and password" in second[-1]["run"]["facets"]["errorMessage"]["message"]
    table, topic = f"{captured.name}.t", f"{captured.name}.shop.{captured.name}.t"
    [read], [written] = first[-1]["inputs"], first[-1]["outputs"]
    assert read["namespace"] == f"mysql://127.0.0.1:{os.environ['TAILORBIRD_PORT_MYSQL_SHOP']}"
    assert (read["name"], written["name"]) == (table, topic)
    shown = "SELECT column_name, column_type FROM information_schema.columns WHERE table_schema = DATABASE()"
    columns = dict(captured.sql(shown))
    assert sorted(columns) == ["id", "v"]
    receiver.events = first
    assert receiver.columns(job, "inputs") == {table: columns}
    assert receiver.columns(job, "outputs") == {topic: columns}
    assert receiver.origins(job) == {topic: {name: {(table, name, "IDENTITY")} for name in columns}}
    sent = "".join(receiver.texts)
    assert _WRONG not in sent
    assert str(_VALUE) not in sent
