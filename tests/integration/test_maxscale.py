"""MaxScale's protocol on real servers: the server process streams to a client what MySQL commits."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.capture_run import Run, logged, published, run_on, topology
from tests.integration.conftest import CapturedDatabase
from tests.support.cdc_client import CdcClient
from tests.support.ports import free_port
from tests.support.replication import promote, replicate
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.integration, pytest.mark.kafka("mysql-shop")]


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[[CapturedDatabase], tuple[str, int]]]:
    """Start `tailorbird serve maxscale` for a capture's topology, with one user; return its address."""
    processes = list[subprocess.Popen[str]]()

    def start(captured: CapturedDatabase) -> tuple[str, int]:
        users, port = tmp_path / "cdcusers", free_port()
        run = [sys.executable, "-m", "tailorbird", "maxscale-users", "add", "foobar", str(captured.file)]
        subprocess.run([*run, "--users", str(users)], input="foopasswd\n", text=True, check=True)
        processes.append(
            subprocess.Popen(
                [sys.executable, "-m", "tailorbird", "serve", "maxscale", str(captured.file), "--users", str(users),
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


@pytest.mark.matrix  # schemas in mid-stream: tests/ingest/maxscale/test_server.py; from a server: the test below
def test_commits_of_mysql_are_streamed(
    capture: Callable[..., CapturedDatabase], serve: Callable[[CapturedDatabase], tuple[str, int]]
) -> None:
    """Rows of the snapshot, then changes, a column added in mid-stream, and a resume at a transaction."""
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


@pytest.fixture
def two(request: pytest.FixtureRequest, unique: Callable[[str], str], tmp_path: Path) -> Iterator[tuple[Run, Run]]:
    """Start a capture of a server that has a replica."""
    flags = ("--log-slave-updates",) if request.param == "maria10" else ()
    run = run_on(request.param, tmp_path, unique("first"), *flags)
    replica = run_on(request.param, tmp_path, unique("second"), "--server-id=78", *flags)
    try:
        replicate(run.server, replica.server)
        yield run, replica
    finally:
        run.close()
        replica.close()


def written(run: Run, first: int, last: int) -> None:
    """Commit an insert and an update for each key in one transaction."""
    with run.server.session(database="d", autocommit=False) as connected, connected.cursor() as cursor:
        for key in range(first, last):
            cursor.execute("INSERT INTO t (id, v) VALUES (%s, 1)", (key,))
            cursor.execute("UPDATE t SET v = 2 WHERE id = %s", (key,))
            connected.commit()


def upto(client: CdcClient, last: int) -> list[dict[str, Any]]:
    """Return rows as they arrive, without schema lines, up to the update of a key."""
    found: list[dict[str, Any]] = []
    while not found or (found[-1]["id"], found[-1]["event_type"]) != (last, "update_after"):
        found += [one for one in client.objects(1) if "fields" not in one]
    return found


@pytest.mark.parametrize("two", ["mysql80", pytest.param("maria10", marks=pytest.mark.matrix)], indirect=True)
def test_a_client_resumes_after_a_failover(
    two: tuple[Run, Run], serve: Callable[[CapturedDatabase], tuple[str, int]]
) -> None:
    """It resumes with the last GTID that it has seen. It receives that transaction again, then the old server's commits
    that capture had not read, then the new server's; each event once and in order, although the servers' ids differ.
    The log has each change of both servers' binary logs once: the capture continues the GTID set over another server's
    file names and positions.
    """
    run, replica = two
    run.start()
    wait_for(lambda: (run.captured.position() or {}).get("snapshot") == "done", "no snapshot", seconds=60)
    address = serve(run.captured)
    written(run, 20_000, 20_050)
    with CdcClient(address) as client:
        client.open().request("REQUEST-DATA d.t")
        seen = [one for one in upto(client, 20_049) if one["server_id"]]
    run.caught_up()
    run.kill()
    written(run, 20_050, 20_080)
    changed = list(logged(run.server))
    promote(run.server, replica.server)
    run.server, replica.server = replica.server, run.server
    with run.server.session() as connected, connected.cursor() as cursor:
        cursor.execute("FLUSH BINARY LOGS")
    written(run, 20_080, 20_120)
    topology(run.captured.name, run.server, run.file)
    run.start()
    with CdcClient(address) as client:
        last = seen[-1]
        client.open().request(f"REQUEST-DATA d.t {last['domain']}-{last['server_id']}-{last['sequence']}")
        again = upto(client, 20_119)
    assert again[:3] == seen[-3:]
    reported = [(one["event_type"], one["id"], one["v"]) for one in seen[:-3] + again if one["id"] >= 20_000]
    kinds = ("insert", 1), ("update_before", 1), ("update_after", 2)
    assert reported == [(kind, key, v) for key in range(20_000, 20_120) for kind, v in kinds]
    assert len({one["server_id"] for one in again}) == 2
    assert [one["sequence"] for one in again] == sorted(one["sequence"] for one in again)
    run.caught_up()
    run.kill(signal.SIGTERM)
    changes, state = published(run)
    changed += list(logged(run.server))[len(changed) :]
    assert len(changes) == 240
    assert changes == changed[-240:]
    assert {key: row["v"] for key, row in state.items()} == {key: row["v"] for key, row in run.rows().items()}
