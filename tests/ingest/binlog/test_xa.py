"""XA transactions and rollbacks on real servers: rows are published at their commit, exactly once, in commit order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pymysql
import pytest

from tests.ingest.binlog.binlog_servers import FLAVOURS, Server
from tests.support.captured_memory import MemoryCapture
from tests.support.xa_traffic import XaTraffic, changes_of

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]
OTHERS = [pytest.param(name, marks=pytest.mark.matrix) for name in ("mysql57", "mysql9", "maria10", "maria11")]


@pytest.fixture
def captured(
    servers: Callable[[str], Server], tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Callable[..., MemoryCapture]]:
    """Start a capture of tables of a new database on a server."""
    made: list[MemoryCapture] = []

    def make(flavour: str, *statements: str, tables: tuple[str, ...] = ("t",), **options: Any) -> MemoryCapture:
        server = servers(flavour)
        name = f"xa{abs(hash(request.node.name)) % 10**8}"
        with server.session() as connected, connected.cursor() as cursor:
            for statement in (f"CREATE DATABASE {name}", f"USE {name}", *statements):
                cursor.execute(statement)
        made.append(MemoryCapture(server, tmp_path, name, tables, **options))
        return made[-1]

    yield make
    for one in made:
        one.stop()


TABLE = "CREATE TABLE t (id BIGINT PRIMARY KEY, v BIGINT)"


@pytest.mark.parametrize(
    ("flavour", "transactions", "kills"),
    [("mysql80", 40, 5), *(pytest.param(name, 200, 20, marks=pytest.mark.matrix) for name in FLAVOURS)],
)
def test_random_interleavings_are_captured_exactly_once(
    captured: Callable[..., MemoryCapture], flavour: str, transactions: int, kills: int
) -> None:
    """Many XA transactions in random interleavings, with plain ones, savepoints and log rotations in between. The
    capture starts in the middle and is killed: each committed change is published once, in commit order, and nothing of
    a rollback."""
    capture = captured(flavour, TABLE)
    traffic = XaTraffic(capture.server, capture.database, random := Random(42))
    try:
        for _ in range(60):
            traffic.step()
        straddling, before = traffic.straddling(), len(traffic.changes)
        capture.start()
        capture.caught_up()
        steps = 0
        while traffic.ended < transactions or capture.kills < kills:
            traffic.step()
            steps += 1
            if steps % 30 == 0:
                capture.kill(random.randrange(30))
            assert steps < 6000
        traffic.finish()
    finally:
        traffic.close()
    capture.caught_up()
    capture.stop()
    assert capture.rows("t") == capture.held("t")
    assert {key: row["v"] for key, row in capture.rows("t").items()} == traffic.rows
    expected = [one for one in traffic.changes[before:] if one[2] is None or one[2] not in straddling]
    found = list(changes_of(capture.events("t")))
    assert [one for one in found if one[2] is not None] == [one for one in expected if one[2] is not None]
    assert traffic.interleaved > transactions // 2
    numbers = [event["source"]["sequence"] for event in capture.events("t") if event["op"] in "cud"]
    assert numbers == sorted(set(numbers))


def run(capture: MemoryCapture, *statements: str) -> Any:
    """Run statements in one session; return the rows of the last one."""
    with capture.server.session(database=capture.database) as connected, connected.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)
        return cursor.fetchall()


def prepare(capture: MemoryCapture, xid: str, *statements: str) -> Any:
    """Prepare an XA transaction; return its session."""
    session = capture.server.session(database=capture.database)
    with session.cursor() as cursor:
        for statement in (f"XA START '{xid}'", *statements, f"XA END '{xid}'", f"XA PREPARE '{xid}'"):
            cursor.execute(statement)
    return session


def restarted(capture: MemoryCapture) -> None:
    """Stop the capture cleanly once it has caught up, and restart it."""
    capture.caught_up()
    capture.stop()
    capture.start()


def newest_log(capture: MemoryCapture) -> str:
    return str(run(capture, "SHOW BINARY LOGS")[-1][0])


ALL = pytest.mark.parametrize("flavour", ["mysql80", *OTHERS])


@ALL
def test_a_prepared_transaction_survives_restarts_rotations_and_a_purge(
    captured: Callable[..., MemoryCapture], flavour: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its rows are read again from the log if memory does not have them; if the log was purged, its table is read."""
    monkeypatch.setattr("ingest.events.prepared.MOST", 100)
    capture = captured(flavour, TABLE, "INSERT INTO t VALUES (1, 1), (2, 2)")
    capture.start()
    capture.caught_up()
    many = ",".join(f"({n}, {n})" for n in range(100, 160))
    sessions = [
        prepare(capture, "kept", f"INSERT INTO t VALUES {many}", "DELETE FROM t WHERE id = 1"),
        prepare(capture, "undone", "INSERT INTO t VALUES (3, 3)"),
        prepare(capture, "purged", "UPDATE t SET v = 22 WHERE id = 2"),
    ]
    run(capture, "FLUSH BINARY LOGS", "INSERT INTO t VALUES (9, 9)")
    restarted(capture)
    with sessions[0].cursor() as cursor:
        cursor.execute("XA COMMIT 'kept'")
    with sessions[1].cursor() as cursor:
        cursor.execute("XA ROLLBACK 'undone'")
    restarted(capture)
    reported = [(event["op"], (event["after"] or event["before"])["id"]) for event in capture.events("t")[2:]]
    assert reported == [("c", 9), *(("c", n) for n in range(100, 160)), ("d", 1)]
    run(capture, "FLUSH BINARY LOGS")
    run(capture, f"PURGE BINARY LOGS TO '{newest_log(capture)}'")
    assert not any("read again" in what for what, _ in capture.phases.said)
    with sessions[2].cursor() as cursor:
        cursor.execute("XA COMMIT 'purged'")
    capture.caught_up()
    assert capture.rows("t") == capture.held("t")
    assert any("read again" in what and "xa: " in str(details["why"]) for what, details in capture.phases.said)
    assert capture.broker.checkpoints[-1].state["prepared"] == []
    for session in sessions:
        session.close()


@ALL
def test_an_incident_is_repaired(captured: Callable[..., MemoryCapture], flavour: str) -> None:
    """The server could not log a change of a MyISAM table, and reports it: all tables are read again, the rest
    flows."""
    capture = captured(flavour, TABLE, "CREATE TABLE m (id INT PRIMARY KEY, v LONGTEXT) ENGINE=MyISAM")
    capture.start()
    capture.caught_up()
    (size,) = run(capture, "SELECT @@GLOBAL.max_binlog_stmt_cache_size")[0]
    try:
        run(capture, "SET GLOBAL max_binlog_stmt_cache_size = 4096")
        with pytest.raises(pymysql.err.MySQLError, match="max_binlog_stmt_cache_size"):
            run(capture, "INSERT INTO m VALUES " + ",".join(f"({n}, REPEAT('x', 3000))" for n in range(40)))
    finally:
        run(capture, f"SET GLOBAL max_binlog_stmt_cache_size = {size}")
    run(capture, "INSERT INTO t VALUES (5, 5)")
    restarted(capture)
    run(capture, "INSERT INTO t VALUES (6, 6)")
    capture.caught_up()
    assert capture.rows("t") == capture.held("t")
    incidents = [details for what, details in capture.phases.said if "incident" in str(details.get("why"))]
    assert len(incidents) == 1, "it is reported once, also after a restart"


@pytest.mark.parametrize("harm", ["checksum", pytest.param("length", marks=pytest.mark.matrix)])
@ALL
def test_a_damaged_log_is_repaired(captured: Callable[..., MemoryCapture], flavour: str, harm: str) -> None:
    """An unreadable part of the log is skipped: all tables are read again, the rest flows."""
    capture = captured(flavour, TABLE)
    capture.start()
    capture.caught_up()
    capture.stop()
    run(capture, "FLUSH BINARY LOGS", "INSERT INTO t VALUES (1, 1)")
    file = capture.server.folder / newest_log(capture)
    begin = file.stat().st_size
    run(capture, "INSERT INTO t VALUES (777, 777)", "INSERT INTO t VALUES (3, 3)", "FLUSH BINARY LOGS")
    data = bytearray(file.read_bytes())
    if harm == "checksum":
        data[data.index((777).to_bytes(8, "little"), begin)] ^= 0xFF
    else:
        data[begin + 9 : begin + 13] = b"\xff\xff\xff\x00"
    file.write_bytes(data)
    run(capture, "INSERT INTO t VALUES (4, 4)")
    capture.start()
    capture.caught_up()
    run(capture, "INSERT INTO t VALUES (5, 5)", "DELETE FROM t WHERE id = 1")
    restarted(capture)
    capture.caught_up()
    assert capture.rows("t") == capture.held("t")
    assert sum("cannot be read" in what for what, _ in capture.phases.said) == 1


@ALL
def test_a_purged_log_is_repaired(captured: Callable[..., MemoryCapture], flavour: str) -> None:
    """By default, all tables are read again, and rows whose deletion was purged disappear."""
    capture = captured(flavour, TABLE, "INSERT INTO t VALUES (1, 1), (2, 2)")
    capture.start()
    capture.caught_up()
    capture.stop()
    run(capture, "DELETE FROM t WHERE id = 1", "INSERT INTO t VALUES (3, 3)", "FLUSH BINARY LOGS")
    run(capture, "FLUSH BINARY LOGS")
    run(capture, f"PURGE BINARY LOGS TO '{newest_log(capture)}'")
    capture.start()
    capture.caught_up()
    run(capture, "UPDATE t SET v = 4 WHERE id = 3")
    capture.caught_up()
    assert capture.rows("t") == capture.held("t")
    assert sorted(capture.rows("t")) == [2, 3]
    assert any(what.startswith("position lost") for what, _ in capture.phases.said)


@pytest.mark.matrix
@pytest.mark.parametrize("flavour", ["maria10", "maria11"])
def test_rows_published_from_a_rolled_back_transaction_are_repaired(
    captured: Callable[..., MemoryCapture], flavour: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MariaDB logs a rollback that creates a temporary table; a MyISAM table's changes persist."""
    monkeypatch.setattr("ingest.events.withheld.MOST", 2000)
    capture = captured(flavour, TABLE)
    capture.start()
    capture.caught_up()
    many = ",".join(f"({n}, {n})" for n in range(1000, 1400))
    run(capture, "BEGIN", f"INSERT INTO t VALUES {many}", "CREATE TEMPORARY TABLE x (a INT)", "ROLLBACK")
    run(
        capture,
        "BEGIN",
        "INSERT INTO t VALUES (1, 1)",
        "SAVEPOINT s",
        f"INSERT INTO t VALUES {many}",
        "CREATE TEMPORARY TABLE x (a INT)",
        "ROLLBACK TO SAVEPOINT s",
        "INSERT INTO t VALUES (2, 2)",
        "COMMIT",
    )
    run(capture, "INSERT INTO t VALUES (3, 3)")
    capture.caught_up()
    assert capture.rows("t") == capture.held("t")
    assert sorted(capture.rows("t")) == [1, 2, 3]
