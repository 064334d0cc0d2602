"""`/metrics` and `/health` of every process."""

from __future__ import annotations

import json
import socket
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, Counter

from cdc.model.errors import UsageError
from cdc.process.file_running import announced, running
from cdc.process.http_operation import serve_operation
from cdc.process.tcp_metrics_address import VARIABLE, address_to_ask, answers_for, metrics_address
from cdc.process.verdict import HealthTracker, HealthVerdict
from tailorbird.operate.status.http_metrics import read_health

OWN_NAME = socket.gethostname()


def ask(port: int, path: str, host: str = "127.0.0.1") -> tuple[int, str]:
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers={"Host": host})
    try:
        with urllib.request.urlopen(request, timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_health_is_200_or_503_with_a_reason() -> None:
    """The status code follows the current verdict. The body has the reason and the process's own values."""
    registry = CollectorRegistry()
    Counter("planted", "One.", registry=registry).inc()
    verdicts = [
        HealthVerdict(status="away", reason="Solr does not answer"),
        HealthVerdict(status="moving", reason="processes its input"),
    ]
    server = serve_operation(0, lambda: (verdicts.pop(0), {"more": 1}), registry)
    try:
        port = server.server_port
        code, body = ask(port, "/health")
        assert (code, json.loads(body)) == (503, {"status": "away", "reason": "Solr does not answer", "more": 1})
        assert ask(port, "/health")[0] == 200
        code, body = ask(port, "/metrics")
        assert code == 200
        assert "planted_total 1.0" in body
        assert "tailorbird_captured" not in body
        assert ask(port, "/else")[0] == 404
        with pytest.raises(UsageError, match="--metrics-port"):
            serve_operation(port, lambda: (verdicts[0], {}))
    finally:
        server.shutdown()
        server.server_close()


def test_only_loopback_names_are_answered() -> None:
    """Another site's page could otherwise read metrics, through a DNS name that points to this machine."""
    server = serve_operation(0, lambda: (HealthVerdict(status="moving", reason=""), {}), CollectorRegistry())
    try:
        for host, code in {
            "127.0.0.1": 200, "localhost:9": 200, "[::1]:9": 200, "LOCALHOST": 200, "127.0.0.2:9": 200,
            "evil.example": 421, "evil.example:80": 421, "127.0.0.1.evil.example": 421, "localhost.": 421,
        }.items():  # fmt: skip
            for path in ("/health", "/metrics"):
                assert ask(server.server_port, path, host)[0] == code, host
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize(
    ("listening", "answered", "refused"),
    [
        ("0.0.0.0", ["10.1.2.3:9404", "127.0.0.1", "[fd00::1]:9", "localhost", OWN_NAME, f"{OWN_NAME}:1"], ["evil.x"]),
        ("::1", ["[::1]:7", "localhost"], ["10.1.2.3", OWN_NAME, "evil.example:80"]),
    ],
)  # fmt: skip
def test_beyond_loopback_addresses_and_the_own_name_are_answered(
    listening: str, answered: list[str], refused: list[str]
) -> None:
    """Prometheus and Kubernetes ask for an address. A rebound DNS name is neither an address nor this machine's."""
    assert [host for host in answered if not answers_for(host, listening)] == []
    assert [host for host in refused if answers_for(host, listening)] == []


def test_the_environment_chooses_the_address(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Every process reads the same variable; `status` asks at an address that reaches the process."""
    monkeypatch.setenv(VARIABLE, "0.0.0.0")
    monkeypatch.setenv("TAILORBIRD_HOME", str(tmp_path))
    server = serve_operation(0, lambda: (HealthVerdict(status="moving", reason=""), {}), CollectorRegistry())
    try:
        assert server.socket.getsockname()[0] == "0.0.0.0"
        assert ask(server.server_port, "/health", "10.1.2.3:80")[0] == 200
        assert ask(server.server_port, "/health", "evil.example")[0] == 421
        with announced("shop", "capture shop", server.server_port):
            [one] = running("shop")
        assert read_health(one.port, one.address) == {"status": "moving", "reason": ""}
    finally:
        server.shutdown()
        server.server_close()
    assert [address_to_ask(one) for one in ("10.0.0.5", "::", "fd00::1")] == ["10.0.0.5", "[::1]", "[fd00::1]"]


def test_a_name_is_not_an_address() -> None:
    """The error names the variable and its value."""
    with pytest.raises(UsageError, match=f"{VARIABLE}: 'metrics.example' is not an IP address"):
        metrics_address({VARIABLE: "metrics.example"})
    assert metrics_address({VARIABLE: " "}) == "127.0.0.1"


def test_a_process_that_waits_is_unavailable_after_its_timeout() -> None:
    """Short outages are not faults. Success under one key does not end the wait under another."""
    standing = HealthTracker()
    assert standing.judge(0.0).status == "starting"
    standing.ready()
    assert standing.judge(0.0).healthy
    standing.waits("hbase", "HBase is unavailable", 10.0)
    standing.waits("hbase", "HBase is still unavailable", 39.0)
    standing.resumes("kafka")
    assert standing.judge(40.0).healthy
    verdict = standing.judge(41.0)
    assert (verdict.status, verdict.reason) == ("away", "waits for 31 s: HBase is still unavailable")
    standing.resumes("hbase")
    assert standing.judge(41.0).healthy


def test_a_batch_that_never_ends_is_stuck() -> None:
    """Tasks wait for HBase invisibly, so only the duration of a batch shows that it is stuck."""
    standing = HealthTracker()
    standing.ready()
    standing.begun(0.0)
    assert standing.judge(600.0).healthy
    assert standing.judge(601.0).status == "stuck"
    standing.ended()
    assert standing.judge(601.0).healthy
