"""MaxScale's protocol on real servers: what MySQL commits is told to a client by the process that serves it."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.integration.conftest import Captured
from tests.support.cdc_client import CdcClient
from tests.support.ports import free_port
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.integration, pytest.mark.kafka("mysql-shop"), pytest.mark.timeout(120)]


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[[Captured], tuple[str, int]]]:
    """Start `tailorbird serve maxscale` for a capture's topology, with one user; where it listens."""
    processes = list[subprocess.Popen[str]]()

    def start(captured: Captured) -> tuple[str, int]:
        users, port = tmp_path / "cdcusers", free_port()
        run = [sys.executable, "-m", "console", "maxscale-users", "add", "foobar", str(captured.file)]
        subprocess.run([*run, "--users", str(users)], input="foopasswd\n", text=True, check=True)
        processes.append(
            subprocess.Popen(
                [sys.executable, "-m", "console", "serve", "maxscale", str(captured.file), "--users", str(users),
                 "--listen", f"127.0.0.1:{port}"],
                stderr=subprocess.PIPE, text=True,
            )
        )  # fmt: skip
        error = processes[-1].stderr
        assert error is not None
        line = next(line for line in error if "serving" in line or not line)
        assert f"127.0.0.1:{port}" in line
        return "127.0.0.1", port

    yield start
    for process in processes:
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=30)
        assert process.returncode == 0, said


def test_what_mysql_commits_is_told(
    capture: Callable[..., Captured], serve: Callable[[Captured], tuple[str, int]]
) -> None:
    """Rows of the snapshot, then changes, a column that comes in mid-stream, and a resume at a transaction."""
    captured = capture("t")
    captured.sql(
        "CREATE TABLE t (id INT PRIMARY KEY, name VARCHAR(20), v DECIMAL(10,2))", "INSERT INTO t VALUES (1, 'a', 1.5)"
    )
    process = captured.start()
    captured.streaming(process)
    address = serve(captured)
    with CdcClient(address) as client:
        client.open().request(f"REQUEST-DATA {captured.name}.t")
        schema, first = client.objects(2)
        assert [field["real_type"] for field in schema["fields"][6:]] == ["int", "varchar", "decimal"]
        assert (first["event_type"], first["id"], first["v"], first["server_id"]) == ("insert", 1, "1.50", 0)
        captured.sql(
            "UPDATE t SET name = 'b'",
            "ALTER TABLE t ADD COLUMN c DATETIME(3)",
            "INSERT INTO t VALUES (2, 'c', 2, '2020-01-02 03:04:05.5')",
        )
        before, after, altered, added = client.objects(4)
        assert (before["event_type"], before["name"]) == ("update_before", "a")
        assert (after["event_type"], after["name"]) == ("update_after", "b")
        assert before["sequence"] == after["sequence"]
        assert before["event_number"] < after["event_number"]
        assert altered["version"] > schema["version"]
        assert added["c"] == "2020-01-02 03:04:05.5"
    with CdcClient(address) as client:
        client.open().request(f"REQUEST-DATA {captured.name}.t 0-{after['server_id']}-{after['sequence']}")
        assert client.objects(3)[1:] == [before, after]
        client.request("QUERY-LAST-TRANSACTION\n")
        wait_for(lambda: "GTID" in client.line(), "no answer", 10)
