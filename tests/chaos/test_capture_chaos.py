"""Capture durable servers under live traffic, while every process is killed.

Afterwards a read_committed reader must have seen each row change of the binary logs exactly once, in order, and the
rows of its records must equal the table's. The expected changes are read from the servers' files, without capture.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path

import pytest

from tailorbird.devtools.stack.proc_stack import Stack
from tests.chaos.capture_run import Run, batter, check, logged, published, run_on, topology
from tests.support.gateways import GatewayProcess
from tests.support.replication import promote, replicate
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1800)]
ROUNDS = int(os.environ.get("TAILORBIRD_CHAOS_KILLS", "50"))
RESULTS = Path(__file__).parents[2] / "docs" / "results" / "capture-chaos.md"
HEADING = """\
# Capture under kill -9

This page shows the results of two tests that `make chaos` runs: `tests/chaos/test_capture_chaos.py` (MySQL, MariaDB)
and `tests/chaos/test_postgres_chaos.py`. Under live traffic, the capture process is killed at random times. Every fifth
time its database server is killed, too, and every tenth time Kafka. Between the kills a column is added, the table is
replaced (MySQL and MariaDB: by RENAME; PostgreSQL: by TRUNCATE and INSERT in one transaction), and all its rows are
updated in one transaction.

Result: every change after the snapshot was published exactly once, in order, and the keys and values of the rows equal
the server's. The expected changes are read from the binary logs; on PostgreSQL a trigger records them.

| server | kills | changes of rows | duration | date |
|---|---|---|---|---|
""".splitlines()


@pytest.fixture
def run_of(stack: Stack, unique: Callable[[str], str], tmp_path: Path) -> Iterator[Callable[..., Run]]:
    runs: list[Run] = []

    def make(flavour: str, *flags: str) -> Run:
        runs.append(run_on(flavour, tmp_path, unique("chaos"), *flags))
        return runs[-1]

    yield make
    for run in runs:
        run.close()


@pytest.mark.matrix  # same as tests/integration/test_capture.py, with kills of the server
def test_capture_survives_kills_restarts_and_swaps(run_of: Callable[..., Run]) -> None:
    """MySQL 8.0: kill -9 of capture and of the server, DDL and a rename swap, in the snapshot and in the stream."""
    run = run_of("mysql80")
    batter(run, 5, 3)
    check(run)


@pytest.mark.chaos
@pytest.mark.parametrize("flavour", ["mysql80", "mysql57", "maria10"])
def test_capture_survives_chaos(run_of: Callable[..., Run], stack: Stack, flavour: str) -> None:
    """The same for longer, on every family of servers, with restarts of the broker and split transactions."""
    run = run_of(flavour)
    began = time.monotonic()
    batter(run, ROUNDS, 11, stack)
    note(run, check(run), time.monotonic() - began)


@pytest.mark.chaos
@pytest.mark.kafka
def test_a_capture_through_a_gateway_survives_chaos(run_of: Callable[..., Run], stack: Stack, tmp_path: Path) -> None:
    """The same through a gateway, which is killed in every third round."""
    run = run_of("mysql80")
    run.gateway = GatewayProcess(run.file, tmp_path / "fleet")
    run.gateway.start()
    try:
        batter(run, ROUNDS, 13, stack)
    finally:
        run.gateway.end()
    check(run)


def note(run: Run, changes: int, seconds: float) -> None:
    """Write the result of a full run, a line for each server."""
    if ROUNDS < 50:
        return
    with run.server.session() as connected, connected.cursor() as cursor:
        cursor.execute("SELECT VERSION()")
        (version,) = cursor.fetchone()
    lines = RESULTS.read_text().splitlines() if RESULTS.exists() else list(HEADING)
    line = f"| {run.server.flavour} ({version}) | {ROUNDS} | {changes:,} | {seconds:.0f} s | {date.today()} |"
    kept = [known for known in lines if not known.startswith(f"| {run.server.flavour} ")]
    RESULTS.write_text("\n".join([*kept, line]) + "\n")


@pytest.mark.chaos
@pytest.mark.parametrize("flavour", ["mysql80", "mysql57", "maria10"])
def test_a_purge_is_reported_and_never_skipped(run_of: Callable[..., Run], flavour: str) -> None:
    """With `position_lost: fail`, a purge of unread transactions ends the capture with an error that names it; the
    position does not move. By default the rows are read again, and rows whose deletion was purged disappear."""
    run = run_of(flavour)
    text = run.file.read_text()
    run.file.write_text(text.replace("server_id: 9123", "server_id: 9123, position_lost: fail"))
    run.start()
    wait_for(lambda: (run.captured.position() or {}).get("snapshot") == "done", "no snapshot", seconds=120)
    run.caught_up()
    run.kill()
    with run.server.session(database="d") as connected, connected.cursor() as cursor:
        cursor.execute("DELETE FROM t WHERE id < 100")
        cursor.execute("FLUSH BINARY LOGS")
        cursor.execute("INSERT INTO t (id, v) VALUES (50000, 1)")
        cursor.execute("FLUSH BINARY LOGS")
        cursor.execute("SHOW BINARY LOGS")
        newest = cursor.fetchall()[-1][0]
        cursor.execute(f"PURGE BINARY LOGS TO '{newest}'")
    before = run.captured.position()
    run.start()
    assert run.process is not None
    assert run.process.wait(60) == 1
    assert "purged" in (run.file.parent / "capture.log").read_text().splitlines()[-1]
    assert run.captured.position() == before
    run.file.write_text(text)
    run.start()
    run.caught_up()
    run.kill(signal.SIGTERM)
    assert {key: row["v"] for key, row in published(run)[1].items()} == {
        key: row["v"] for key, row in run.rows().items()
    }


@pytest.mark.chaos
def test_capture_survives_kills_before_and_after_a_failover(run_of: Callable[..., Run]) -> None:
    """Kills, DDL and swaps before and after; the old server's commits that the capture had not read are read from the
    new one."""
    run, replica = run_of("mysql80"), run_of("mysql80", "--server-id=78")
    replicate(run.server, replica.server)
    batter(run, ROUNDS // 5, 5)
    with run.server.session(database="d") as connected, connected.cursor() as cursor:
        for key in range(20_000, 20_100):
            cursor.execute("INSERT INTO t (id, v) VALUES (%s, 1)", (key,))
    promote(run.server, replica.server)
    run.server, replica.server = replica.server, run.server
    topology(run.captured.name, run.server, run.file)
    batter(run, ROUNDS // 5, 6, first=ROUNDS // 5)
    check(run)


@pytest.mark.matrix  # with a client, and commits that were not read: tests/integration/test_maxscale.py
def test_capture_fails_over_to_another_server(run_of: Callable[..., Run]) -> None:
    """A replica takes over with its own file names and positions: the GTID set continues, nothing is lost or
    repeated."""
    run, replica = run_of("mysql80"), run_of("mysql80", "--server-id=78")
    replicate(run.server, replica.server)
    run.start()
    wait_for(lambda: (run.captured.position() or {}).get("snapshot") == "done", "no snapshot", seconds=120)
    with run.server.session(database="d") as connected, connected.cursor() as cursor:
        for key in range(20_000, 20_100):
            cursor.execute("INSERT INTO t (id, v) VALUES (%s, 1)", (key,))
    run.caught_up()
    run.kill()
    truth = list(logged(run.server))
    promote(run.server, replica.server)
    with replica.server.session(database="d") as connected, connected.cursor() as cursor:
        cursor.execute("FLUSH BINARY LOGS")
        for key in range(20_050, 20_150):
            cursor.execute("REPLACE INTO t (id, v) VALUES (%s, 2)", (key,))
    run.server, replica.server = replica.server, run.server
    topology(run.captured.name, run.server, run.file)
    run.start()
    run.caught_up()
    run.kill(signal.SIGTERM)
    changes, state = published(run)
    truth += list(logged(run.server))[len(truth) :]
    assert len(changes) == 200
    assert changes == truth[-200:]
    assert {key: row["v"] for key, row in state.items()} == {key: row["v"] for key, row in run.rows().items()}


@pytest.mark.matrix
def test_rows_whose_columns_are_not_known_are_kept_and_decoded_later(run_of: Callable[..., Run]) -> None:
    """Rows whose columns the log does not contain are kept as bytes, the rest flows. When the server shows the columns,
    or a user sets them, the rows follow in order."""
    run = run_of("mysql80", "--binlog-row-metadata=MINIMAL")
    with run.server.session(database="d") as connected, connected.cursor() as cursor:
        cursor.execute("CREATE TABLE other (id INT PRIMARY KEY)")
        run.file.write_text(run.file.read_text().replace("tables: [t]", "tables: [t, other]"))
        run.start()
        wait_for(lambda: (run.captured.position() or {}).get("snapshot") == "done", "no snapshot", seconds=90)
        cursor.execute("SET sql_log_bin = 0")
        cursor.execute("ALTER TABLE t ADD secretly INT DEFAULT 7")
        cursor.execute("SET sql_log_bin = 1")
        for key in range(30_000, 30_020):
            cursor.execute("INSERT INTO t (id, v) VALUES (%s, 1)", (key,))
            cursor.execute("UPDATE t SET v = 2 WHERE id = %s", (key,))
        cursor.execute("INSERT INTO other VALUES (1)")
        dead_letters = f"{run.captured.name}.quarantine"
        wait_for(lambda: len(run.captured.read(dead_letters, 1)) == 40, "nothing was kept", seconds=60)
        # the capture asks the server, and every row follows; so do the next ones, at once
        wait_for(lambda: len(published(run)[0]) == 40, "what was kept was not published", seconds=60)
        cursor.execute("UPDATE t SET v = 3 WHERE id = 30000")
    run.caught_up()
    run.kill(signal.SIGTERM)
    changes, state = published(run)
    assert changes == list(logged(run.server))[-len(changes) :]
    assert len(changes) == 41
    assert state[30_000] == {"id": 30_000, "v": 3, "w": "x", "secretly": 7}
    assert len(run.captured.read(dead_letters, 1)) == 40
    assert len(run.captured.read(f"{run.captured.name}.shop.d.other")) == 1
