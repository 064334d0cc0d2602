"""A capture in operation: its metrics, its health, its log lines, and its exit."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.ports import free_port

pytestmark = [pytest.mark.integration, pytest.mark.kafka("mysql-shop")]


def ask(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except OSError:
        return 0, ""


def start(captured: Any, port: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "ingest", str(captured.file), "--metrics-port", str(port)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    captured.processes.append(process)
    return process


def test_metrics_health_and_log_lines_of_a_capture(capture: Callable[..., Any]) -> None:
    """Debezium's names, 200 with position and head while it progresses, JSON lines with positions; SIGTERM drains."""
    captured, port = capture("t"), free_port()
    captured.sql("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1), (2), (3)")
    process = start(captured, port)
    captured.wait_for(lambda: ask(port, "/health")[0] == 200, "never healthy")
    captured.streaming(process)
    captured.sql("INSERT INTO t VALUES (4), (5)")
    captured.caught_up()

    def events() -> list[float]:
        lines = ask(port, "/metrics")[1].splitlines()
        return [float(x.rpartition(" ")[2]) for x in lines if x.startswith("debezium_metrics_TotalNumberOfEventsSeen{")]

    captured.wait_for(lambda: events() == [5.0], "events are not counted")
    metrics = ask(port, "/metrics")[1]
    for name in ("MilliSecondsBehindSource", "NumberOfCommittedTransactions", "SnapshotCompleted", "Connected"):
        assert f"debezium_metrics_{name}{{" in metrics
    assert "kafka_connect_source_task_metrics_source_record_write_total" in metrics
    code, body = ask(port, "/health")
    shown = json.loads(body)
    assert code == 200
    assert shown["status"] == "moving"
    assert shown["position"]["file"] == shown["head"]["file"]
    assert ask(port, "/nothing")[0] == 404
    process.terminate()
    _, said = process.communicate(timeout=60)
    assert process.returncode == 0
    lines = [json.loads(line) for line in said.splitlines()]
    assert lines[-1]["event"] == "stopped"
    assert ":" in lines[-1]["position"]
    assert all({"timestamp", "level", "topology", "source"} <= line.keys() for line in lines)


def test_a_capture_without_its_source_is_not_healthy(capture: Callable[..., Any]) -> None:
    """The process lives and waits; the health check answers 503 and the reason."""
    captured, port = capture("t"), free_port()
    closed = free_port()
    text = captured.file.read_text()
    head, _, rest = text.partition(" port: ")
    captured.file.write_text(f"{head} port: {closed},{rest.partition(',')[2]}")
    process = start(captured, port)
    captured.wait_for(lambda: ask(port, "/health")[0] == 503 and str(closed) in ask(port, "/health")[1], "no reason")
    assert process.poll() is None
    process.terminate()
    process.communicate(timeout=60)
    assert process.returncode == 0
